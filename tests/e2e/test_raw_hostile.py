"""Frames that no good client sends. The relay answers or hangs up, and goes on serving others."""

import json
from contextlib import suppress

import aiohttp
import pytest

from tests.e2e.authors import Author
from tests.e2e.client import RawClient

ID = "0" * 64


@pytest.fixture(autouse=True)
def _others_are_still_served(connect):
    yield
    author = Author()
    other = connect()
    other.store(event := author.event())
    assert other.ids({"authors": [author.pubkey]}) == [event["id"]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "hello",
        "{}",
        "[]",
        "null",
        "[[]]",
        "[1]",
        '["EVENT"',
        '["event", {}]',
        '["NOPE", "x"]',
        '["\\ud800"]',
        '["REQ", "\\ud800", {}]',
        '["REQ", "a\u0000b", {}]',
        "\u0000",
        "\ufeff[]",
        "[" * 100_000,
        "[" * 100_000 + "]" * 20_000,
        '{"a":' * 20_000,
        "1" * 100_000,
        '["REQ", "x", {"limit": NaN}]',
        '["REQ"]',
        '["REQ", 5, {}]',
        '["REQ", null, {}]',
        '["CLOSE"]',
        '["CLOSE", {}]',
        '["COUNT"]',
        '["CLOSE", ""]',
        json.dumps(["CLOSE", "x" * 65]),
        json.dumps(["CLOSE", "x" * 100_000]),
    ],
    ids=lambda text: repr(text[:24]),
)
def test_what_carries_no_id_gets_a_notice(client: RawClient, text: str):
    client.send_text(text)
    assert client.wait_for("NOTICE")[1].startswith("invalid: ")
    assert client.count({"ids": [ID]}) == {"count": 0}


@pytest.mark.parametrize(
    ("name", "filters"),
    [
        ("", [{}]),
        ("x" * 65, [{}]),
        ("ü" * 65, [{}]),
        ("none", []),
        ("huge", [{"since": 10**300}]),
        ("huge", [{"kinds": [10**25]}]),
        ("nested", [[[[[]]]]]),
        ("nested", [{"ids": [[ID]]}]),
        ("object", [{"ids": {ID: ID}}]),
        ("key", [{"x" * 10_000: 1}]),
    ],
)
def test_a_wrong_req_or_count_is_closed(client: RawClient, name: str, filters: list):
    for verb in ("REQ", "COUNT"):
        assert client.refusal(verb, name, *filters).startswith("invalid: ")


@pytest.mark.parametrize("name", ["x" * 64, "ü" * 64, '"\\', "a#b#c", "\u0001\u0000", "🎩"])
def test_any_text_is_a_subscription_id(client: RawClient, author: Author, name: str):
    assert client.request(name, {"authors": [author.pubkey]}) == []
    client.store(event := author.event())
    assert client.wait_for("EVENT", name)[2] == event
    client.send("CLOSE", name)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "abc"},
        {"id": 7},
        {"id": ID.upper().replace("0", "A")},
        {"pubkey": None},
        {"created_at": "now"},
        {"created_at": -1},
        {"created_at": 1.5},
        {"created_at": True},
        {"created_at": 2**63},
        {"created_at": 10**300},
        {"kind": 65536},
        {"kind": -1},
        {"kind": "1"},
        {"tags": None},
        {"tags": {}},
        {"tags": ["t"]},
        {"tags": [["t", 5]]},
        {"tags": [["t", None]]},
        {"tags": [[["t"]]]},
        {"content": None},
        {"content": []},
        {"sig": ""},
        {"sig": "0" * 128},
        {"sig": "f" * 127 + "g"},
    ],
    ids=repr,
)
def test_a_wrong_field_gets_ok_false(client: RawClient, author: Author, change: dict):
    event = {**author.event(), **change}
    client.send("EVENT", event)
    claimed = event["id"] if isinstance(event["id"], str) else ""
    _, _, accepted, reason = client.wait_for("OK", claimed)
    assert (accepted, reason.split(":")[0]) == (False, "invalid")


@pytest.mark.parametrize("body", [None, [], "x", 7, {}, {"id": None}, {"id": "y" * 100_000}])
@pytest.mark.parametrize("verb", ["EVENT", "AUTH"])
def test_what_is_no_event_gets_ok_false(client: RawClient, verb: str, body: object):
    client.send(verb, body)
    _, claimed, accepted, reason = client.wait_for("OK")
    assert len(claimed) <= 64
    assert (accepted, reason.split(":")[0]) == (False, "invalid")


def test_an_event_message_without_an_event_is_refused(client: RawClient):
    client.send("EVENT")
    assert client.wait_for("OK")[1:3] == ["", False]


def test_fields_that_nobody_knows_are_dropped(client: RawClient, author: Author):
    event = author.event()
    assert client.publish({**event, "seen_on": ["wss://elsewhere"]}) == (True, "")
    assert client.ask({"ids": [event["id"]]})[0] == event


@pytest.mark.parametrize("size", [131_073, 200_000, 1_000_000, 4_000_000])
def test_a_frame_that_is_too_large(client: RawClient, size: int):
    with suppress(ConnectionError):  # the relay need not hear it to the end
        client.send_text("x" * size)
    assert client.wait_for_close() in (1009, 1006)
    assert all(frame[0] in ("NOTICE", "AUTH") for frame in client.inbox)


def test_bytes_count_and_not_characters(client: RawClient):
    client.send_text(json.dumps(["NOPE", "ü" * 70_000], ensure_ascii=False))
    assert client.wait_for_close() == 1009


def test_the_largest_message_is_taken(client: RawClient, author: Author):
    room = 131_072 - len(json.dumps(["EVENT", author.event("")]).encode())
    event = author.event("x" * min(room, 102_400))
    client.store(event)
    assert client.ask({"ids": [event["id"]]}) == [event]
    accepted, reason = client.publish(author.event("x" * 102_401))
    assert (accepted, reason.split(":")[0]) == (False, "invalid")


def test_binary_frames_are_not_taken(client: RawClient, author: Author):
    client.send_bytes(json.dumps(["EVENT", author.event()]).encode())
    assert client.wait_for_close() == 1003


def test_text_that_is_not_utf_8(client: RawClient):
    client.send_frame(b'["REQ","\xff\xfe",{}]', aiohttp.WSMsgType.TEXT)
    assert client.wait_for_close() in (1007, 1006)


def test_a_client_that_leaves_in_the_middle(connect, author: Author):
    events = [author.event() for _ in range(100)]
    for _ in range(5):
        leaving = connect()
        leaving.send_text(*(json.dumps(["EVENT", event]) for event in events))
        leaving.send("REQ", "all", {"limit": 5000})
        leaving.abort()


def test_a_client_that_sends_and_never_reads(connect, author: Author):
    quiet = connect()
    quiet.send_text(*[json.dumps(["REQ", "same", {"kinds": [1], "limit": 500}])] * 200)
    quiet.abort()
