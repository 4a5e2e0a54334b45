"""The connector's steps, each alone and in their order, and the one place where failures end."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from farthing.connector import arrival, delivery, receivers, toon_event
from farthing.connector import steps as connector
from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Receiver
from farthing.context import Agent
from farthing.ilp.oer import u64
from farthing.ilp.packet import Code, Fulfill, Reject, encode
from farthing.ilp.reject import (
    AmountTooLarge,
    InsufficientTimeout,
    Rejected,
    TimedOut,
)
from farthing.ilp.toon import dumps_event
from farthing.store.ledger import Peer
from farthing.store.table import StoreError
from tests.ilp.paying import (
    PAYER,
    PER_BYTE,
    assert_fulfilled,
    code_of,
    dump,
    expiry,
    note,
    packet,
    pay,
    posted,
    price_of,
    send,
)
from tests.relay.world import BOB, OWNER, START, counts_of, signed

WRONG = bytes(32)


def incoming(agent: Agent, peer: Peer = PAYER, **changes: Any) -> IncomingPacket:
    """A packet that has been decoded."""
    made = IncomingPacket(peer, encode(packet(agent, note(), **changes)), agent.now_ms)
    connector.decode(agent, made)
    return made


# Each step alone


def test_the_steps_stand_in_their_order() -> None:
    groups = (connector.INCOMING, connector.FOR_US, connector.ONWARD)
    assert [[step.__name__ for step in group] for group in groups] == [
        ["check_rate", "claim_request", "decode", "check_expiry", "check_amount"],
        [
            "choose_receiver",
            "check_purchase",
            "check_condition",
            "check_ledger",
            "commit_purchase",
            "fulfil",
        ],
        [
            "answer_configuration",
            "check_free_rate",
            "answer_repeat",
            "await_first_reply",
            "choose_next_hop",
            "make_onward_packet",
            "hold_amount",
            "send_onward",
            "settle",
        ],
    ]


@pytest.mark.parametrize(
    ("seconds", "error"),
    [(-1, TimedOut), (0, TimedOut), (0.001, InsufficientTimeout), (0.099, InsufficientTimeout)],
)
def test_a_packet_that_has_expired_or_soon_will_is_rejected(
    agent: Agent, seconds: float, error: type[Rejected]
) -> None:
    with pytest.raises(error):
        connector.check_expiry(agent, incoming(agent, expires_at=expiry(agent, seconds)))


@pytest.mark.parametrize("seconds", [0.1, 1, 3600])
def test_a_packet_with_time_enough_passes(agent: Agent, seconds: float) -> None:
    connector.check_expiry(agent, incoming(agent, expires_at=expiry(agent, seconds)))


def test_the_largest_packet_of_the_settings_and_of_the_peer(agent_with: Any) -> None:
    agent = agent_with(max_packet=1000)
    modest = Peer("modest", "", max_packet=10)
    connector.check_amount(agent, incoming(agent, amount=1000))
    connector.check_amount(agent, incoming(agent, modest, amount=10))
    with pytest.raises(AmountTooLarge) as above:
        connector.check_amount(agent, incoming(agent, amount=1001))
    assert above.value.data == u64(1001) + u64(1000)
    with pytest.raises(AmountTooLarge) as above:
        connector.check_amount(agent, incoming(agent, modest, amount=2**64 - 1))
    assert above.value.data == u64(2**64 - 1) + u64(10)


@pytest.mark.parametrize("behind", ["", ".anything", ".a.b"])
def test_what_is_for_us_ends_here(agent: Agent, behind: str) -> None:
    here = agent.settings.own_ilp_address + behind
    assert isinstance(pay(agent, note(), destination=here), Fulfill)


@pytest.mark.parametrize("destination", ["g.agent", "g.agent.bob", "peer.config", "OWN+x"])
def test_what_is_for_others_goes_on_and_finds_no_route(agent: Agent, destination: str) -> None:
    destination = destination.replace("OWN+", agent.settings.own_ilp_address)
    assert_rejected(agent, pay(agent, note(), destination=destination), "F02")


# Every reject


def without_signature(agent: Agent) -> bytes:
    return dumps_event(note()).replace(b"sig: ", b"gis: ")


def with_another_signature(agent: Agent) -> bytes:
    event = note()
    return dumps_event(event).replace(event.sig.encode(), note("other").sig.encode())


def with_another_content(agent: Agent) -> bytes:
    return dumps_event(note()).replace(b"hello", b"jello")


def expired(agent: Agent) -> bytes:
    return dumps_event(note(tags=[["expiration", str(START)]]))


def protected(agent: Agent) -> bytes:
    return dumps_event(note(tags=[["-"]]))


def from_the_future(agent: Agent) -> bytes:
    return dumps_event(note(created_at=START + 10_000))


def only_for_authentication(agent: Agent) -> bytes:
    return dumps_event(note(kind=22242))


Data = Callable[[Agent], bytes]


@pytest.mark.parametrize(
    ("code", "data"),
    [
        ("F00", without_signature),
        ("F00", with_another_signature),
        ("F00", with_another_content),
        ("F00", lambda _: b"kind: 1"),
        ("F06", lambda _: b""),
        ("F06", lambda _: b"\xff\xfe"),
        ("F06", lambda _: b"[1]: 2"),
        ("F06", lambda _: b"just a greeting"),
        ("F06", lambda _: b"hello: world"),
        ("F00", lambda _: b"\x01\x01\x00\x02{}"),  # a BTP-NIPs envelope without its parts
        ("F06", lambda _: b'"text"'),
        ("F06", lambda _: b" \n[1, 2]"),
        ("F99", expired),
        ("F99", protected),
        ("F99", from_the_future),
        ("F99", only_for_authentication),
    ],
)
def test_wrong_data_is_rejected_and_changes_nothing(agent: Agent, code: str, data: Data) -> None:
    before = dump(agent.engine)
    octets = data(agent)
    reply = pay(agent, note(), data=octets, amount=PER_BYTE * (len(octets) + 1))
    assert_rejected(agent, reply, code)
    assert dump(agent.engine) == before


@pytest.mark.parametrize("space", [b"", b" ", b"\n\t"])
def test_an_event_in_json_is_told_what_was_expected(agent: Agent, space: bytes) -> None:
    reply = pay(agent, note(), data=space + note().to_json().encode(), amount=10**6)
    assert isinstance(reply, Reject)
    assert (reply.code, reply.message) == ("F06", "expected TOON, got JSON")


@pytest.mark.parametrize(
    ("code", "settings", "changes"),
    [
        ("F02", {}, {"destination": "g.agent.somebody-else"}),
        ("F04", {}, {"amount": 0}),
        ("F04", {}, {"amount": 100}),
        ("F05", {}, {"condition": WRONG}),
        ("F05", {}, {"secret": BOB}),
        ("F08", {"max_packet": 9_999}, {"amount": 10_000}),
        ("F99", {"blocked_pubkeys": frozenset({note().pubkey})}, {}),
        ("T04", {"max_balance": 100}, {}),
        ("T05", {"packets_per_minute": 0}, {}),
    ],
)
def test_a_wrong_packet_is_rejected_and_changes_nothing(
    agent_with: Any, code: str, settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    agent = agent_with(**settings)
    before = dump(agent.engine)
    assert_rejected(agent, pay(agent, note(), **changes), code)
    assert dump(agent.engine) == before


@pytest.mark.parametrize(("code", "seconds"), [("R00", -5), ("R00", 0), ("R02", 0.05)])
def test_packets_that_come_too_late(agent: Agent, code: str, seconds: float) -> None:
    before = dump(agent.engine)
    assert_rejected(agent, pay(agent, note(), expires_at=expiry(agent, seconds)), code)
    assert dump(agent.engine) == before


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\x0c",
        b"\x0d\x00",
        b"GET / HTTP/1.1",
        encode(Fulfill(bytes(32))),
        encode(Reject(Code.F00_BAD_REQUEST, "g.a", "no")),
    ],
)
def test_octets_that_are_no_prepare_are_f01(agent: Agent, octets: bytes) -> None:
    before = dump(agent.engine)
    assert_rejected(agent, send(agent, octets), "F01")
    assert dump(agent.engine) == before


def test_trailing_bytes_are_no_prepare(agent: Agent) -> None:
    assert_rejected(agent, send(agent, encode(packet(agent, note())) + b"\x00"), "F01")


def assert_rejected(agent: Agent, reply: Fulfill | Reject, code: str) -> None:
    assert code_of(reply) == code
    assert isinstance(reply, Reject)
    assert reply.triggered_by == agent.settings.own_ilp_address
    assert reply.message
    assert counts_of(agent)["PacketsRejected"] == 1  # type: ignore[index]


def test_one_unit_below_the_price_is_told_the_price(agent: Agent) -> None:
    price = price_of(agent, note())
    reply = pay(agent, note(), amount=price - 1)
    assert isinstance(reply, Reject)
    assert reply.code == Code.F04_INSUFFICIENT_DESTINATION_AMOUNT
    assert orjson.loads(reply.data) == {
        "price": str(price),
        "received": str(price - 1),
        "asset_code": "USD",
        "asset_scale": 9,
    }
    assert isinstance(pay(agent, note(), amount=price), Fulfill)


def test_amounts_beyond_the_maximum_are_told_both_numbers(agent: Agent) -> None:
    reply = pay(agent, note(), amount=2**64 - 1)
    assert isinstance(reply, Reject)
    assert reply.code == Code.F08_AMOUNT_TOO_LARGE
    assert reply.data == u64(2**64 - 1) + u64(agent.settings.max_packet)


def test_the_rate_is_counted_by_peer_and_minute(agent_with: Any, clock: Any) -> None:
    agent = agent_with(packets_per_minute=2)
    agent.ledger.add_peer(other := Peer("other", "0" * 64))
    events = [note(str(number)) for number in range(5)]
    assert [code_of(pay(agent, event)) for event in events[:3]] == ["fulfilled", "fulfilled", "T05"]
    assert code_of(pay(agent, events[3], other)) == "fulfilled"
    clock.now += 60
    assert code_of(pay(agent, events[2])) == "fulfilled"


# One place where failures end


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (arrival, "decode_prepare"),
        (connector, "_is_for_us"),
        (receivers, "RECEIVERS"),
        (toon_event, "loads"),
        (toon_event, "verify"),
        (toon_event, "check_policies"),
        (toon_event, "writes_free"),
        (toon_event, "find_fulfillment"),
        (delivery, "Receipt"),
        (delivery, "max_balance"),
    ],
)
@pytest.mark.parametrize("error", [StoreError, RuntimeError, RecursionError, KeyError])
def test_whatever_goes_wrong_is_an_internal_error(
    agent: Agent,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: Any,
    name: str,
    error: type[Exception],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("something that is nobody's business")

    if name == "RECEIVERS":
        failing: object = (Receiver("failing", fail),)  # type: ignore[arg-type]
    else:
        failing = fail
    before = dump(agent.engine)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, failing)
        reply = pay(agent, note())
    assert_rejected(agent, reply, "T00")
    assert reply.message == "internal error"  # type: ignore[union-attr]
    assert "something that is nobody's business" in caplog.text
    assert dump(agent.engine) == before
    assert counts_of(agent)["InternalErrors"] == 1  # type: ignore[index]
    prepare = packet(agent, note())
    assert_fulfilled(send(agent, prepare), prepare)


def test_a_step_of_any_place_may_fail(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    for group in ("INCOMING", "FOR_US", "ONWARD"):
        for place in range(len(getattr(connector, group))):
            steps = list(getattr(connector, group))
            steps[place] = fail
            # A packet that another step would end before is none of this test's.
            if group == "ONWARD":
                steps[:place] = []
            with monkeypatch.context() as patch:
                patch.setattr(connector, group, steps)
                ours = agent.settings.own_ilp_address
                destination = "g.elsewhere" if group == "ONWARD" else ours
                reply = pay(agent, note(f"{group} {place}"), destination=destination)
            assert code_of(reply) == "T00", (group, place)


def test_a_list_without_an_end_is_unreachable(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "FOR_US", ())
    assert_rejected(agent, pay(agent, note()), "F02")


def test_the_owner_does_not_pay_and_may(agent: Agent) -> None:
    free, tipped = signed(OWNER, content="free"), signed(OWNER, content="tipped")
    assert isinstance(pay(agent, free, secret=OWNER, amount=0), Fulfill)
    assert posted(agent) == 0
    assert isinstance(pay(agent, tipped, secret=OWNER, amount=7), Fulfill)
    assert posted(agent) == 7
