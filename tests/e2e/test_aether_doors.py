"""Aether at every door of a running relay: sockets in each format, HTTP, and beside Nostr."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from farthing.aether.messages import Envelope
from tests.aether.known import KEYS, VECTORS
from tests.e2e.aether_client import ENVELOPES, JSON, AetherAuthor, AetherClient
from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.conftest import OPEN
from tests.e2e.paying import http, information
from tests.e2e.relay_process import RelayProcess

Connect = Callable[..., AetherClient]
JUDGED = [*VECTORS["events"], *VECTORS["forged"]]


@pytest.fixture
def aether(background: Background, relay: RelayProcess) -> Iterator[Connect]:
    """Aether connections to the module's relay, or to another; closed after the test."""
    clients: list[AetherClient] = []

    def connect(
        envelope: Envelope = JSON, path: str = "", url: str = "", **options: Any
    ) -> AetherClient:
        clients.append(AetherClient(background, (url or relay.url) + path, envelope, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def agent() -> AetherAuthor:
    return AetherAuthor()


def post_event(relay: RelayProcess, body: object) -> urllib3.BaseHTTPResponse:
    return http("POST", f"{relay.http}/v1/events", json.dumps(body).encode())


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
def test_every_vector_has_its_answer_by_socket(
    start_relay: Callable[..., RelayProcess], background: Background, envelope: Envelope
) -> None:
    relay = start_relay(**OPEN)
    client = AetherClient(background, relay.url, envelope)
    try:
        for vector in JUDGED:
            event, expected = vector["event"], vector["expect"]
            answer = client.publish(event)
            if expected == "stored":
                assert answer == {
                    "type": "ack", "event_id": event["event_id"], "message": "accepted",
                }, vector["name"]  # fmt: skip
                assert client.publish(event)["message"] == "duplicate"
                continue
            code = "validation_failed" if expected == "superseded" else expected
            assert (answer["type"], answer["error"]) == ("error", code), vector["name"]
            if expected != "invalid_event":
                assert answer["event_id"] == event["event_id"]
        stays, goes = VECTORS["tie"]["stays"], VECTORS["tie"]["goes"]
        assert client.publish(goes)["message"] == "accepted"
        assert client.publish(stays)["message"] == "accepted"
        assert client.publish(goes)["error"] == "validation_failed"
        assert client.subscribe("tie", {"kinds": [10005]}) == [stays]
        offers = client.subscribe("offers", {"kinds": [10002]})
        assert [each["event_id"] for each in offers] == [VECTORS["invoices"][1]]
    finally:
        client.close()


def test_every_vector_has_its_answer_by_http(start_relay: Callable[..., RelayProcess]) -> None:
    relay = start_relay(**OPEN)
    for vector in JUDGED:
        event, expected = vector["event"], vector["expect"]
        for body in (event, {"event": event}):
            answer = post_event(relay, body)
            if expected == "stored":
                message = "accepted" if body is event else "duplicate"
                assert answer.status == 200, vector["name"]
                assert answer.json() == {
                    "accepted": True, "event_id": event["event_id"], "message": message,
                }  # fmt: skip
            else:
                assert answer.status == (409 if expected == "superseded" else 400), vector["name"]
                assert answer.json()["accepted"] is False
                if expected != "superseded":
                    assert answer.json()["error"] == expected
                assert answer.json()["message"]


def test_bodies_that_are_no_event(relay: RelayProcess) -> None:
    for body in (b"", b"x", b"[]", b"{}", b'{"event":1}', b'{"event_id":1}'):
        answer = http("POST", f"{relay.http}/v1/events", body)
        assert answer.status == 400
        assert answer.json()["accepted"] is False
        assert answer.json()["error"] in ("invalid_message", "invalid_event")
    assert http("POST", f"{relay.http}/v1/events", b"x" * 200_000).status == 413


def test_events_go_live_from_socket_to_socket_across_formats(
    aether: Connect, agent: AetherAuthor
) -> None:
    readers = [aether(envelope) for envelope in ENVELOPES.values()]
    for number, reader in enumerate(readers):
        assert reader.subscribe(f"s{number}", {"authors": [agent.pubkey]}) == []
    writers = [aether(envelope) for envelope in ENVELOPES.values()]
    for kind, writer in zip((1, 20001, 30000, 1), writers, strict=True):
        event = agent.event("héllo", kind=kind, tags=[["t", "x", "yy"], ["long_key", "v"]])

        assert writer.publish(event)["message"] == "accepted"

        for number, reader in enumerate(readers):
            body = reader.wait_for(type="event", sub_id=f"s{number}")
            assert body["event"] == json.loads(event.to_json())


def test_an_ephemeral_event_goes_out_once_and_is_not_stored(
    aether: Connect, agent: AetherAuthor
) -> None:
    reader, writer = aether(), aether()
    reader.subscribe("s", {"kinds": [20001], "pubkey_prefixes": [agent.pubkey[:32]]})
    event, later = agent.event(kind=20001), agent.event(kind=20001)

    assert writer.publish(event)["message"] == "accepted"
    assert writer.publish(event)["message"] == "duplicate"
    assert writer.publish(later)["message"] == "accepted"

    got = [reader.wait_for(type="event")["event"]["event_id"] for _ in range(2)]
    assert got == [event.id, later.id]
    assert writer.subscribe("s", {"authors": [agent.pubkey]}) == []


def test_filters_find_what_is_stored(aether: Connect, agent: AetherAuthor) -> None:
    client = aether()
    first = agent.event("1", tags=[["t", "x", "y"], ["group", "g"]])
    second = agent.event("2", kind=7, tags=[["t", "z"]])
    for event in (first, second):
        assert client.publish(event)["message"] == "accepted"

    def ask(**filter: Any) -> list[str]:
        found = client.subscribe("ask", {"pubkey_prefixes": [agent.pubkey[:32]], **filter})
        client.send({"type": "unsubscribe", "sub_id": "ask"})
        client.wait_for(type="ack", sub_id="ask")
        return [each["event_id"] for each in found]

    assert ask() == [second.id, first.id]
    assert ask(limit=1) == [second.id]
    assert ask(**{"#t": ["y", "z"]}) == [second.id, first.id]
    assert ask(tags={"t": ["y"], "group": ["g"]}) == [first.id]
    assert ask(tags=[["group", ["other"]]]) == []
    assert ask(kinds=[7]) == [second.id]
    assert ask(ids=[first.id]) == [first.id]
    assert ask(since=str(second.created_at)) == [second.id]
    assert ask(until=first.created_at) == [first.id]
    assert ask(authors=[agent.pubkey]) == [second.id, first.id]
    assert ask(authors=["0" * 64]) == []


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"type": "nonsense"}, {}),
        ({"type": "event"}, {}),
        ({"type": "publish"}, {}),
        ({"type": "publish", "event": 1}, {}),
        ({"type": "subscribe", "sub_id": "s"}, {"sub_id": "s"}),
        ({"type": "subscribe", "sub_id": "s", "filters": []}, {"sub_id": "s"}),
        ({"type": "subscribe", "sub_id": "s", "filters": [{"x": 1}]}, {"sub_id": "s"}),
        ({"type": "subscribe", "sub_id": "", "filters": [{}]}, {}),
        ({"type": "subscribe", "sub_id": "s" * 65, "filters": [{}]}, {}),
        ({"type": "unsubscribe"}, {}),
        ({"type": "hello", "version": 0}, {}),
        ({"type": "noise", "payload_hex": "00"}, {}),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_what_is_wrong_gets_an_error(
    aether: Connect, body: dict[str, Any], named: dict[str, str]
) -> None:
    client = aether()
    client.send_frame(json.dumps(body))

    answer = client.receive()
    assert answer["type"] == "error"
    assert answer["error"] in ("invalid_message", "invalid_event")
    assert named.items() <= answer.items()


def test_hello_comes_first_and_once(aether: Connect) -> None:
    client = aether()
    welcome = client.hello(version=3)
    assert welcome["version"] == 1
    assert welcome["format"] == "flatbuffers"
    assert welcome["noise"]["required"] is False
    assert client.hello()["error"] == "invalid_message"
    assert client.hello(formats=["json"])["error"] == "invalid_message"
    late = aether()
    late.send({"type": "unsubscribe", "sub_id": "s"})
    late.receive()
    assert late.hello()["error"] == "invalid_message"


@pytest.mark.parametrize("marked", ["path", "subprotocol", "hello"])
def test_a_marked_connection_is_sent_no_nostr_frame(
    aether: Connect, agent: AetherAuthor, marked: str
) -> None:
    client = {
        "path": lambda: aether(path="/v1/ws"),
        "subprotocol": lambda: aether(protocols=["other", "aether.v1"]),
        "hello": lambda: aether(),
    }[marked]()
    assert client.socket.protocol == ("aether.v1" if marked == "subprotocol" else None)
    if marked == "hello":
        client.hello()
    for frame in ('["REQ","s",{}]', json.dumps(["EVENT", Author().event()]), "[", "nonsense", "[1"):
        client.send_frame(frame)
        answer = json.loads(client.receive_frame())
        assert (answer["type"], answer["error"]) == ("error", "invalid_message")
    client.envelope = ENVELOPES["binary"]
    client.send_frame(b"nonsense")
    assert client.receive()["error"] == "invalid_message"
    assert client.publish(agent.event())["message"] == "accepted"


def test_other_frames_get_a_notice_where_nothing_is_marked(
    connect: Callable[..., RawClient], relay: RelayProcess
) -> None:
    client = connect()
    for frame in ("nonsense", "{}", '{"type":1}', "AAAA", ""):
        client.send_text(frame)
        assert client.wait_for("NOTICE")[1].startswith("invalid:")


def test_both_protocols_on_one_connection(
    connect: Callable[..., RawClient], agent: AetherAuthor, author: Author
) -> None:
    """The challenge of Nostr waits for the first message of Nostr's."""
    client = connect()
    event = agent.event()
    client.send_text(json.dumps({"type": "publish", "event": event.as_dict()}))
    assert client.receive() == {"type": "ack", "event_id": event.id, "message": "accepted"}
    note = author.event()
    client.send("EVENT", note)
    assert client.receive()[0] == "AUTH"
    assert client.receive()[:3] == ["OK", note["id"], True]
    client.send("REQ", "s", {"ids": [note["id"]]})
    client.send_text(
        json.dumps({"type": "subscribe", "sub_id": "s", "filters": [{"ids": [event.id]}]})
    )
    frames = [client.receive() for _ in range(4)]
    assert frames[0][:2] == ["EVENT", "s"]
    assert frames[1] == ["EOSE", "s"]
    assert frames[2]["event"]["event_id"] == event.id
    assert frames[3] == {"type": "ack", "sub_id": "s"}


def test_no_nostr_client_sees_an_aether_event(
    connect: Callable[..., RawClient], aether: Connect, agent: AetherAuthor
) -> None:
    nostr = connect()
    nostr.request("all", {"authors": [agent.pubkey]}, {"kinds": [1, 20001], "limit": 0})
    before = nostr.count({})["count"]
    nostr.send("CHANGES", "feed", {"since": 0})
    writer = aether()
    for kind in (1, 20001, 30000):
        assert writer.publish(agent.event(kind=kind))["message"] == "accepted"
    note = Author().event()
    nostr.publish(note)

    frames = [nostr.wait_for("EVENT", "all")]
    assert frames[0][2]["id"] == note["id"]
    assert nostr.count({})["count"] == before + 1
    assert nostr.ids({"authors": [agent.pubkey]}) == []
    assert not [frame for frame in nostr.inbox if agent.pubkey in json.dumps(frame)]


def test_a_nostr_client_that_asks_reads_and_writes_aether(
    connect: Callable[..., RawClient], aether: Connect, agent: AetherAuthor
) -> None:
    nostr, other = connect(), aether()
    event = agent.event(tags=[["t", "x"]])
    body = json.loads(event.to_json())
    nostr.send("EVENT", body)
    assert nostr.wait_for("OK", event.id) == ["OK", event.id, True, ""]
    nostr.send("EVENT", body)
    assert nostr.wait_for("OK", event.id)[2:] == [True, "duplicate: already have this event"]
    nostr.send("EVENT", {**body, "content": "other"})
    assert nostr.wait_for("OK", event.id)[2] is False
    found = nostr.request("s", {"aether": True, "authors": [agent.pubkey], "#t": ["x"]})
    assert found == [{"id": event.id, **body}]
    later = agent.event(tags=[["t", "x"]])
    other.publish(later)
    assert nostr.wait_for("EVENT", "s")[2]["event_id"] == later.id
    nostr.send("CLOSE", "s")
    assert "aether" in nostr.refusal("REQ", "mixed", {"aether": True}, {"kinds": [1]})
    assert nostr.refusal("REQ", "wrong", {"aether": False})


def test_the_information_document_names_the_keys(start_relay: Callable[..., RelayProcess]) -> None:
    relay = start_relay(**OPEN, secret_key=KEYS["owner_nostr_secret"])
    assert information(relay)["aether"] == {
        "version": 1,
        "pubkey": KEYS["owner_aether_pubkey"],
        "noise_pubkey": KEYS["relay_noise_public"],
        "formats": ["flatbuffers", "json"],
        "ws": f"{relay.url}/v1/ws",
    }


def test_a_relay_without_aether_serves_none_of_it(
    start_relay: Callable[..., RelayProcess], connect: Callable[..., RawClient], agent: AetherAuthor
) -> None:
    relay = start_relay(**OPEN, aether=0)
    assert "aether" not in information(relay)
    assert post_event(relay, agent.event().as_dict()).status == 400
    assert http("GET", f"{relay.http}/v1/stream?subscription_id=x").status == 404
    client = connect(relay)
    client.send_text(json.dumps({"type": "publish", "event": agent.event().as_dict()}))
    assert client.wait_for("NOTICE")
    client.send_bytes(b"\0")
    assert client.wait_for_close() == 1003
