"""pay.js and the library write the same bytes, and read the same replies."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from farthing.ilp import toon
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import (
    DATA_MAX,
    Fulfill,
    InvalidPacket,
    Prepare,
    Reject,
    decode_reply,
    encode,
)
from farthing.nostr.events import public_key_of
from tests.ilp.test_toon import AWKWARD, EVENT, GM
from tests.paying.pay_js import PayJs

# JavaScript's whole numbers end at 2^53.
EVENTS = EVENT.map(lambda event: event | {"created_at": event["created_at"] % 2**53})
ONE_PROCESS = settings(
    max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
MOMENT = datetime(2030, 1, 2, 3, 4, 5, 6000, UTC)


def assert_same_toon(pay_js: PayJs, event: dict[str, Any]) -> None:
    assert bytes.fromhex(pay_js.ask("toon", event=event)["hex"]) == toon.dumps(event)


@ONE_PROCESS
@given(event=EVENTS)
@example(event=GM | {"tags": [[]], "created_at": -1})
@example(event=GM | {"tags": [["a", "b"], ["c", "d"]]})
def test_events_are_the_same_toon(pay_js: PayJs, event: dict[str, Any]) -> None:
    assert_same_toon(pay_js, event)


@ONE_PROCESS
@given(text=st.text("01.eE+-_ atruefalsn", max_size=7))
def test_what_looks_like_a_number_or_a_word_is_the_same_toon(pay_js: PayJs, text: str) -> None:
    assert_same_toon(pay_js, GM | {"content": text, "tags": [["t", text], [text]]})


def test_awkward_texts_and_every_character_below_u3100_are_the_same_toon(pay_js: PayJs) -> None:
    for text in AWKWARD:
        assert_same_toon(pay_js, GM | {"content": text, "tags": [[text], ["x", text, "y"]]})
    letters = [chr(code) for code in range(0x3100)]
    around = [[letter, f"a{letter}b", f"{letter}b", f"a{letter}"] for letter in letters]
    for start in range(0, len(around), 1024):
        assert_same_toon(pay_js, GM | {"tags": around[start : start + 1024]})


@pytest.mark.parametrize(
    "change",
    [
        {"created_at": 1.5},
        {"created_at": 2**53},
        {"created_at": "1"},
        {"content": None},
        {"content": "\ud800"},
        {"tags": "t"},
        {"tags": ["t"]},
        {"tags": [["t", 1]]},
    ],
    ids=ascii,
)
def test_what_is_no_event_is_refused(pay_js: PayJs, change: dict[str, Any]) -> None:
    assert pay_js.ask("toon", event=GM | change)["error"] == "PaymentFailed"


@pytest.mark.parametrize("name", toon.FIELDS)
def test_an_event_without_a_field_is_refused(pay_js: PayJs, name: str) -> None:
    rest = {key: value for key, value in GM.items() if key != name}
    assert name in pay_js.ask("toon", event=rest)["message"]


@pytest.mark.parametrize("size", [0, 1, 94, 95, 127, 128, 255, 256, DATA_MAX])
@pytest.mark.parametrize("amount", [0, 1, 2**53 + 1, 2**64 - 1])
def test_packets_are_the_same_bytes(pay_js: PayJs, size: int, amount: int) -> None:
    prepare = Prepare(amount, MOMENT, b"\xc1" * 32, "g.agent.alice", b"\xd2" * size)
    assert ask_prepare(pay_js, prepare)["hex"] == encode(prepare).hex()


def ask_prepare(pay_js: PayJs, prepare: Prepare) -> dict[str, Any]:
    moment = prepare.expires_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return pay_js.ask(
        "prepare", amount=str(prepare.amount), expiresAt=moment, condition=prepare.condition.hex(),
        destination=prepare.destination, data=prepare.data.hex(),
    )  # fmt: skip


@pytest.mark.parametrize(
    "prepare",
    [
        Prepare(2**64, MOMENT, bytes(32), "g.a", b""),
        Prepare(1, MOMENT, bytes(31), "g.a", b""),
        Prepare(1, MOMENT, bytes(32), "nowhere", b""),
        Prepare(1, MOMENT, bytes(32), "g.a\n", b""),
        Prepare(1, MOMENT, bytes(32), "g.a", bytes(DATA_MAX + 1)),
    ],
    ids=["amount", "condition", "address", "address with a newline", "data"],
)
def test_a_packet_that_cannot_be_is_refused(pay_js: PayJs, prepare: Prepare) -> None:
    assert ask_prepare(pay_js, prepare)["error"] == "PaymentFailed"


REPLIES: list[Fulfill | Reject] = [
    Fulfill(b"\xf1" * 32),
    Fulfill(bytes(32), bytes(DATA_MAX)),
    Reject("F04", "g.agent.bob", "größer \U0001f600", b'{"price":"1"}'),
    Reject("T00", "", "", b""),
    Reject("xyz", "g." + "a" * 1021, "\ufeffm" * 2000, bytes(300)),
]


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_replies_are_read_as_they_were_written(pay_js: PayJs, reply: Fulfill | Reject) -> None:
    assert read_by_pay_js(pay_js, encode(reply)) == reply


def read_by_pay_js(pay_js: PayJs, octets: bytes) -> Fulfill | Reject | None:
    """The reply; None where it is refused."""
    answer = pay_js.ask("reply", hex=octets.hex())
    if "error" in answer:
        return None
    data = bytes.fromhex(answer["data"])
    if answer["type"] == 13:
        return Fulfill(bytes.fromhex(answer["fulfillment"]), data)
    return Reject(answer["code"], answer["triggeredBy"], answer["message"], data)


def read_by_us(octets: bytes) -> Fulfill | Reject | None:
    try:
        return decode_reply(octets)
    except InvalidPacket:
        return None


def test_broken_replies_are_refused_by_both(pay_js: PayJs) -> None:
    rng = random.Random(5)
    refused = 0
    for _ in range(1500):
        octets = bytearray(encode(rng.choice([REPLIES[0], REPLIES[2], REPLIES[3]])))
        match rng.randrange(4):
            case 0:
                octets[rng.randrange(len(octets))] = rng.randrange(256)
            case 1:
                del octets[rng.randrange(len(octets)) :]
            case 2:
                octets.insert(rng.randrange(len(octets)), rng.randrange(256))
            case 3:
                octets[1:2] = rng.choice([b"\x81", b"\x82\x00", b"\x80", b"\xff"]) + octets[1:2]
        ours = read_by_us(bytes(octets))
        assert read_by_pay_js(pay_js, bytes(octets)) == ours, octets.hex()
        refused += ours is None
    assert 500 < refused < 1500


@pytest.mark.parametrize(
    "octets", [b"", b"\x0c\x00", encode(Prepare(1, MOMENT, bytes(32), "g.a", b""))]
)
def test_what_is_no_reply_is_refused(pay_js: PayJs, octets: bytes) -> None:
    assert read_by_pay_js(pay_js, octets) is None


def test_author_and_relay_come_to_the_same_preimage(pay_js: PayJs) -> None:
    rng = random.Random(9)
    for _ in range(20):
        author, relay, data = rng.randbytes(32), rng.randbytes(32), rng.randbytes(50)
        at_relay = author_fulfillment(relay, bytes.fromhex(public_key_of(author)), data)
        answer = pay_js.ask(
            "author", secret=author.hex(), pubkey=public_key_of(relay), data=data.hex()
        )
        assert answer["fulfillment"] == at_relay.hex()
        assert answer["condition"] == condition_of(at_relay).hex()
