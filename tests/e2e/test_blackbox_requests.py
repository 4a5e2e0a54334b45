"""What a client sees that shares no code with us: each event once, each request with its answer."""

import json

import pytest

from tests.e2e.raw_sockets import Closed, WebSocket, Writer
from tests.e2e.relay_process import RelayProcess


def test_an_event_that_was_just_stored_comes_once(relay: RelayProcess) -> None:
    writer = Writer()
    with WebSocket(relay.port) as client:
        for number in range(40):
            tags = [["t", f"{writer.pubkey}{number}"]]
            wanted = {"#t": [tags[0][1]]}
            stored = [writer.event(str(each), tags=tags) for each in range(5)]
            for event in stored:
                client.send("EVENT", event)
            waiting = {event["id"] for event in stored}
            while waiting:
                waiting.discard(client.until("OK")[-1][1])
            client.send("REQ", "all", wanted)
            client.send("REQ", "new", wanted | {"limit": 0})
            late = writer.event("late", tags=tags)
            client.send("EVENT", late)
            got: dict[str, list[str]] = {"all": [], "new": []}
            while not (late["id"] in got["all"] and late["id"] in got["new"]):
                message = client.receive()
                if message[0] == "EVENT":
                    got[message[1]].append(message[2]["id"])
            client.send("CLOSE", "all")
            client.send("CLOSE", "new")
            assert sorted(got["all"]) == sorted(event["id"] for event in [*stored, late])
            assert got["new"] == [late["id"]]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            '["EVENT",{"id":"ab","content":"\\ud800"}]',
            ["OK", "ab", False, "invalid: expected JSON"],
        ),
        ('["EVENT",{"id":"\\ud800"}]', ["OK", "", False, "invalid: expected JSON"]),
        ('["EVENT",{"created_at":1e999}]', ["OK", "", False, "invalid: expected JSON"]),
        ('["EVENT","\\udc00"]', ["OK", "", False, "invalid: expected JSON"]),
        ('["AUTH",{"id":"ab","sig":"\\ud800"}]', ["OK", "ab", False, "invalid: expected JSON"]),
        ('["REQ","a",{"#t":["\\ud800"]}]', ["CLOSED", "a", "invalid: expected JSON"]),
        ('["REQ","a",{"limit":1e999}]', ["CLOSED", "a", "invalid: expected JSON"]),
        ('["REQ","a",{"limit":' + "9" * 5000 + "}]", ["CLOSED", "a", "invalid: expected JSON"]),
        (
            '["REQ","a\\n",' + "[" * 50_000 + "]" * 50_001,
            ["CLOSED", "a\n", "invalid: expected JSON"],
        ),
        (
            '["EVENT",{"tags":' + "[" * 50_000 + "]" * 50_000 + "}]",
            ["OK", "", False, "invalid: expected JSON"],
        ),
        ('["COUNT","a",{"#t":["\\ud800x"]}]', ["CLOSED", "a", "invalid: expected JSON"]),
        ('["CHANGES","a",{"#t":["\\ud800"]}]', ["CHANGES", "a", "ERR", "invalid: expected JSON"]),
        ('["NEG-OPEN","a",{"#t":["\\ud800"]},"61"]', ["NEG-ERR", "a", "invalid: expected JSON"]),
        (
            '["EVENT",{"event_id":"cd","content":"\\ud800"}]',
            ["OK", "cd", False, "invalid: expected JSON"],
        ),
        # There is no id that could be sent back.
        ('["REQ",5,{"limit":1e999}]', ["NOTICE", "invalid: expected JSON"]),
        ('["REQ","\\ud800",{}]', ["NOTICE", "invalid: expected JSON"]),
        ('["REQ","a",{"limit":NaN}]', ["NOTICE", "invalid: expected JSON"]),
        ('["REQ","a",{"limit":' + "9" * 5000 + "]", ["NOTICE", "invalid: expected JSON"]),
        ('["REQ","a",' + "[" * 50_000, ["CLOSED", "a", "invalid: expected JSON"]),
        ('["NOPE","a",' + "[" * 50_000 + "]" * 50_001, ["NOTICE", "invalid: expected JSON"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_json_can_say_and_no_text_can_hold_is_refused_by_id(
    relay: RelayProcess, text: str, answer: list[object]
) -> None:
    with WebSocket(relay.port) as client:
        assert client.answer(text, "OK", "CLOSED", "CHANGES", "NEG-ERR", "NOTICE") == answer


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        (["EVENT", {"id": "ab"}], ["OK", "ab", False]),
        (["EVENT", {"id": "ab", "event_id": "cd"}], ["OK", "cd", False]),
        (["REQ", "a", {}], ["CLOSED", "a"]),
        (["COUNT", "a", {}], ["CLOSED", "a"]),
        (["CLOSE", "a"], ["NOTICE"]),
    ],
)
def test_a_message_that_is_too_long_is_refused_by_id_before_the_end(
    relay: RelayProcess, parts: list[object], answer: list[object]
) -> None:
    with WebSocket(relay.port) as client:
        client.text(json.dumps(parts).ljust(131_073))
        refusal, end = client.receive(), client.receive()
    assert refusal == [*answer, "invalid: message over 131072 bytes"]
    assert end == Closed(1009)


_ID = "ab" * 32


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/", {"type": "publish", "event": {"event_id": _ID}}, {"event_id": _ID}),
        ("/", {"event": {"event_id": _ID}, "type": "publish"}, {"event_id": _ID}),
        ("/v1/ws", {"type": "subscribe", "sub_id": "s"}, {"sub_id": "s"}),
        ("/v1/ws", ["REQ", "s", {}], {}),
    ],
)
def test_an_aether_message_that_is_too_long_is_refused_by_id(
    relay: RelayProcess, path: str, body: object, named: dict[str, str]
) -> None:
    with WebSocket(relay.port, path) as client:
        client.text(json.dumps(body).ljust(131_073))
        refusal, end = client.receive(), client.receive()
    code = "too_large" if named else "invalid_message"
    assert refusal == {"type": "error", "error": code, "message": refusal["message"], **named}
    assert end == Closed(1009)


def test_a_client_of_both_protocols_is_answered_in_the_one_it_used(relay: RelayProcess) -> None:
    with WebSocket(relay.port) as client:
        client.text('{"type":"unsubscribe","sub_id":"s"}')
        assert client.receive() == {"type": "ack", "sub_id": "s"}
        client.text(json.dumps(["EVENT", {"id": "ab"}]).ljust(131_073))
        assert client.receive() == ["OK", "ab", False, "invalid: message over 131072 bytes"]


def test_an_object_without_a_type_does_not_make_a_client_speak_aether(relay: RelayProcess) -> None:
    with WebSocket(relay.port) as client:
        client.text("{}")
        assert client.until("NOTICE")[-1][1].startswith("invalid: ")
        client.text(json.dumps(["REQ", "a", {}]).ljust(131_073))
        assert client.receive() == ["CLOSED", "a", "invalid: message over 131072 bytes"]


@pytest.mark.parametrize("message", ["", "00", "zz", "61000003", None])
def test_of_filter_and_message_the_filter_is_judged_first(
    relay: RelayProcess, message: str | None
) -> None:
    with WebSocket(relay.port) as client:
        client.send("NEG-OPEN", "a", {"kinds": "1"}, message)
        assert client.until("NEG-ERR", "NEG-MSG")[-1] == ["NEG-ERR", "a", "FILTER_INVALID"]
        client.send("NEG-OPEN", "a", {"kinds": [1]}, message)
        assert client.until("NEG-ERR", "NEG-MSG")[-1] == ["NEG-ERR", "a", "CLOSED"]
