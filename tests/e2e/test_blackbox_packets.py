"""Packets written byte by byte, by the facts alone: every code with its data, and money once."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.raw_sockets import (
    HttpAnswer,
    Reply,
    WebSocket,
    Writer,
    exchange,
    octets,
    post,
    prepare,
    read_reply,
    toon,
)
from tests.e2e.relay_process import RelayProcess

MAX_PACKET = 1_000_000
PER_BYTE, PER_LIKE, LIKE = 10, 1000, 7
OCTETS = "application/octet-stream"


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    folder = tmp_path_factory.mktemp("relay") / "data"
    relay = RelayProcess(
        folder, max_packet=MAX_PACKET, price_kinds=json.dumps({LIKE: PER_LIKE})
    ).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


@pytest.fixture
def writer() -> Writer:
    return Writer()


def own(relay: RelayProcess) -> str:
    return f"g.agent.{relay.pubkey}"


def send(relay: RelayProcess, packet: bytes, **headers: str) -> HttpAnswer:
    token = (relay.data / "peer-token").read_text().strip()
    given = {"Authorization": f"Bearer {token}", "Content-Type": OCTETS, **headers}
    return post(relay.port, "/ilp", packet, **given)


def reply_to(relay: RelayProcess, packet: bytes) -> Reply:
    answer = send(relay, packet)
    assert (answer.status, answer.headers["content-type"]) == (200, OCTETS)
    reply = read_reply(answer.body)
    assert reply.triggered_by == (own(relay) if reply.code else "")
    return reply


def condition(fulfillment: bytes) -> bytes:
    return hashlib.sha256(fulfillment).digest()


def pay(
    relay: RelayProcess, writer: Writer, data: bytes, amount: int, preimage: bytes = b"",
    **more: Any,
) -> Reply:  # fmt: skip
    preimage = preimage or writer.fulfillment(relay.pubkey, data)
    packet = prepare(amount, condition(preimage), own(relay), data, **more)
    reply = reply_to(relay, packet)
    assert reply.code or reply.fulfillment == preimage
    return reply


def revenue(relay: RelayProcess) -> int:
    text = exchange(relay.port, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").body.decode()
    rows = [row.split() for row in text.splitlines() if row.startswith("farthing_revenue_total")]
    return sum(int(float(amount)) for _, amount in rows)


def test_the_size_that_the_facts_name() -> None:
    event = {
        "id": "a" * 64, "pubkey": "b" * 64, "created_at": 1234567890, "kind": 1, "tags": [],
        "content": "gm", "sig": "c" * 128,
    }  # fmt: skip
    assert len(toon(event)) == 327


def test_the_price_is_bytes_times_price_and_not_a_unit_less(
    relay: RelayProcess, writer: Writer
) -> None:
    data = toon(writer.event("exact"))
    price = PER_BYTE * len(data)
    for short in (0, price - 1):
        reply = pay(relay, writer, data, short)
        wanted = {"price": str(price), "received": str(short), "asset_code": "USD"}
        assert (reply.code, json.loads(reply.data)) == ("F04", {**wanted, "asset_scale": 9})
    assert pay(relay, writer, data, price).code == ""


def test_a_kind_s_price_is_flat(relay: RelayProcess, writer: Writer) -> None:
    data = toon(writer.event("+" * 500, LIKE))
    assert pay(relay, writer, data, PER_LIKE - 1).code == "F04"
    assert pay(relay, writer, data, PER_LIKE).code == ""


@pytest.mark.parametrize("source", ["id", "data"])
def test_conditions_of_deployed_payers_are_fulfilled(
    relay: RelayProcess, writer: Writer, source: str
) -> None:
    event = writer.event(f"interop {source}")
    data = toon(event)
    preimage = hashlib.sha256(event["id"].encode() if source == "id" else data).digest()
    assert pay(relay, writer, data, PER_BYTE * len(data), preimage).code == ""


def test_the_interop_condition_is_that_of_the_vector() -> None:
    fulfillment = hashlib.sha256(b"a" * 64).digest()
    assert fulfillment.hex() == "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"
    assert (
        condition(fulfillment).hex()
        == "64d28424725a6f219efb17d6f8e4036719bf9e1a8ec2388c22cfb5fc412d46bc"
    )


def test_a_quote_s_condition_is_fulfilled(relay: RelayProcess, writer: Writer) -> None:
    event = writer.event("quoted")
    body = json.dumps({"event": event}).encode()
    answer = post(relay.port, "/v1/quotes", body, Content_Type="application/json")
    quote = json.loads(answer.body)
    wanted = bytes.fromhex(quote["condition"])
    packet = prepare(int(quote["price"]), wanted, quote["destination"], toon(event))
    reply = reply_to(relay, packet)
    assert (reply.code, condition(reply.fulfillment)) == ("", wanted)


def test_each_fault_of_an_event_has_its_code(relay: RelayProcess, writer: Writer) -> None:
    event = writer.event("sound")
    cases = {
        toon({**event, "content": "altered"}): "F00",
        toon({**event, "sig": "0" * 128}): "F00",
        toon({**event, "kind": 70_000}): "F00",
        toon(event).replace(b"tags[0]:\n", b""): "F00",
        json.dumps(event).encode(): "F06",
        b"": "F06",
        b"hello": "F06",
        b"\xff\xfe": "F06",
        b"x" * 32767: "F06",
    }
    for data, code in cases.items():
        assert pay(relay, writer, data, 500_000).code == code, data[:40]
    past = writer.event(tags=[["expiration", "1"]])
    data = toon({**past, "tags": []}).replace(b"tags[0]:", b'tags[1]:\n  - [2]: expiration,"1"')
    assert pay(relay, writer, data, 500_000).code == "F99"


def test_an_event_is_not_paid_for_a_second_time(relay: RelayProcess, writer: Writer) -> None:
    event = writer.event("once")
    data = toon(event)
    price = PER_BYTE * len(data)
    before = revenue(relay)
    assert pay(relay, writer, data, price).code == ""
    assert pay(relay, writer, data, price).code == ""  # the same payment once more
    assert pay(relay, writer, data, price, hashlib.sha256(data).digest()).code == "F99"
    assert pay(relay, writer, data, price, b"\0" * 32).code == "F05"
    assert revenue(relay) - before == price


@pytest.mark.parametrize("same_id", [True, False])
def test_twenty_at_once_are_one_payment(relay: RelayProcess, writer: Writer, same_id: bool) -> None:
    event = writer.event(f"at once {same_id}")
    data = toon(event)
    preimage = writer.fulfillment(relay.pubkey, data)
    packet = prepare(PER_BYTE * len(data), condition(preimage), own(relay), data)
    headers = {"Request-Id": "one"} if same_id else {}
    before = revenue(relay)
    with ThreadPoolExecutor(20) as pool:
        answers = set(pool.map(lambda _: send(relay, packet, **headers).body, range(20)))
    assert [read_reply(each).fulfillment for each in answers] == [preimage]
    assert revenue(relay) - before == PER_BYTE * len(data)
    with WebSocket(relay.port) as client:
        client.send("COUNT", "a", {"ids": [event["id"]]})
        assert client.until("COUNT")[-1] == ["COUNT", "a", {"count": 1}]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"seconds": -1}, "R00"),
        ({"seconds": 0.05}, "R02"),
        ({"expiry": b"20301301000000000"}, "F01"),
        ({"expiry": b"20300230000000000"}, "F01"),
        ({"expiry": b"20300101240000000"}, "F01"),
        ({"expiry": b"20300101006000000"}, "F01"),
        ({"expiry": b"20300101000060000"}, "F01"),
        ({"expiry": b"2030010100000 000"}, "F01"),
        ({"expiry": b"+0300101000000000"}, "F01"),
    ],
    ids=str,
)
def test_a_packet_with_a_wrong_or_early_expiry_is_rejected(
    relay: RelayProcess, writer: Writer, changes: dict[str, Any], code: str
) -> None:
    data = toon(writer.event("late"))
    assert pay(relay, writer, data, PER_BYTE * len(data), **changes).code == code


@pytest.mark.parametrize("amount", [MAX_PACKET + 1, 2**64 - 1])
def test_the_maximum_of_a_packet(relay: RelayProcess, writer: Writer, amount: int) -> None:
    data = toon(writer.event("dear"))
    reply = pay(relay, writer, data, amount)
    assert (reply.code, reply.data) == ("F08", amount.to_bytes(8) + MAX_PACKET.to_bytes(8))
    assert pay(relay, writer, data, MAX_PACKET).code == ""


@pytest.mark.parametrize(
    ("destination", "code"),
    [
        *((each, "F02") for each in (
            "g.nobody", "private.x", "example.x", "self.x", "test.x", "test1.x", "local.x",
            "peer.x", "peer.route.control", "g." + "a" * 1021,
        )),
        *((each, "F01") for each in (
            "", "g", "g.", ".g", "g..x", "g.a b", "g.é", "G.x", "foo.x", "test4.x", "g.x\n",
            "g." + "a" * 1022,
        )),
    ],
    ids=lambda value: value[:12],
)  # fmt: skip
def test_a_packet_to_an_unknown_or_invalid_address_is_rejected(
    relay: RelayProcess, destination: str, code: str
) -> None:
    assert reply_to(relay, prepare(1, bytes(32), destination, b"")).code == code


def test_a_prefix_ends_with_a_segment(relay: RelayProcess, writer: Writer) -> None:
    for destination, code in ((own(relay) + "x", "F02"), (own(relay) + ".x.~_-", "")):
        data = toon(writer.event(destination))
        preimage = writer.fulfillment(relay.pubkey, data)
        packet = prepare(PER_BYTE * len(data), condition(preimage), destination, data)
        assert reply_to(relay, packet).code == code


def spoilt(relay: RelayProcess) -> dict[str, bytes]:
    """Packets that are not canonical, cut, too long or of another type."""
    whole = prepare(1, bytes(32), own(relay), b"")
    start = (1).to_bytes(8) + b"20300101000000000" + bytes(32) + octets(own(relay).encode())
    body = whole[whole.index(bytes([len(whole) - 3])) + 1 :]
    return {
        "empty": b"",
        "a type alone": b"\x0c",
        "cut": whole[:-1],
        "trailing": whole + b"\0",
        "length with a zero": bytes([12, 0x82, 0, len(body)]) + body,
        "length of no size": bytes([12, 0x80]) + body,
        "length of nine": bytes([12, 0x89]) + bytes(8) + body,
        "inner length": b"\x0c" + octets(start + b"\x81\x00"),
        "inner trailing": b"\x0c" + octets(start + b"\x00\x00"),
        "data of 32768": b"\x0c" + octets(start + octets(bytes(32768))),
        "no such type": b"\x0f\x00",
        "a Fulfill": b"\x0d" + octets(bytes(32) + b"\0"),
        "a Reject": b"\x0e" + octets(b"F00\0\0\0"),
    }


def test_bytes_that_are_no_packet(relay: RelayProcess) -> None:
    for name, packet in spoilt(relay).items():
        assert reply_to(relay, packet).code == "F01", name


def test_a_client_gets_its_address_and_asset_by_ildcp(relay: RelayProcess) -> None:
    reply = reply_to(relay, prepare(0, condition(bytes(32)), "peer.config", b""))
    wanted = octets(f"{own(relay)}.local".encode()) + b"\x09" + octets(b"USD")
    assert (reply.fulfillment, reply.data) == (bytes(32), wanted)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer nobody"}, 401),
        ({"Authorization": "Bearer a.b.c"}, 401),
        ({"Authorization": "Basic eDp5"}, 401),
        ({"Content-Type": "application/json"}, 400),
        ({"Content-Type": ""}, 400),
        ({"Prefer": "respond-async"}, 400),
        ({"Request-Id": "1", "Callback-Url": "http://127.0.0.1:1/"}, 400),
        ({"Request-Id": "x" * 257}, 400),
        ({"Content-Type": "Application/Octet-Stream; a=b"}, 200),
        ({"Callback-Url": "http://127.0.0.1:1/"}, 200),
    ],
    ids=str,
)
def test_a_wrong_request_has_its_http_status(
    relay: RelayProcess, headers: dict[str, str], status: int
) -> None:
    answer = send(relay, prepare(1, bytes(32), "g.nobody", b""), **headers)
    assert answer.status == status
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_a_body_that_is_no_packet_s_size(relay: RelayProcess) -> None:
    assert send(relay, bytes(40_000)).status == 413


def test_the_same_request_id_with_another_packet(relay: RelayProcess, writer: Writer) -> None:
    data = toon(writer.event("first"))
    preimage = writer.fulfillment(relay.pubkey, data)
    first = prepare(PER_BYTE * len(data), condition(preimage), own(relay), data)
    other = prepare(1, bytes(32), "g.nobody", b"")
    replies = [send(relay, each, Request_Id="r").body for each in (first, other, first)]
    assert len(set(replies)) == 1
