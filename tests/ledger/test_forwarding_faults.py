"""Forwarding to a plain ILPv4 connector, which fulfils and claims every packet that it gets.
Whatever fails, each packet that it fulfilled is charged and owed, and its claim agrees with our
books."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from farthing.agent.audit import audit
from farthing.connector.steps import handle
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject, decode_prepare, decode_reply, encode
from farthing.ports.outbound import OutboundTimeout, Response
from farthing.store.ledger import Peer
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Contended, Engine, OutcomeUnknown, StoreError, Throttled
from tests.ilp.paying import PAYER, MotoLedger, code_of, expiry, paid_agent, posted, send
from tests.relay.world import Clock
from tests.store.faulty import Crash, Fault, FaultyEngine, at, never, nth

FULFILLMENT = bytes(range(32))
CONDITION = sha256(FULFILLMENT).digest()
SECRET = "01" * 32
HOP = Peer("hop", "7" * 64, "g.hop", "http://hop/ilp", pubkey="79be667ef9dcbbac55a06295ce870b07"
           "029bfcdb2dce28d959f2815b16f81798")  # fmt: skip


@dataclass
class PlainConnector:
    """Knows no repeats, as RFC 0027 has it."""

    claim: int = 0
    packets: list[Prepare] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None
    lock: Any = field(default_factory=threading.Lock)

    def post(self, _url: str, _headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        assert timeout > 0
        prepare = decode_prepare(body)
        with self.lock:
            self.claim += prepare.amount
            self.packets.append(prepare)
        self.before_answer()
        return Response(200, encode(Fulfill(FULFILLMENT)))

    def call_back(self, *_: object) -> None:
        raise AssertionError("nobody asked for a callback")


def forwarding_agent(engine: Engine, clock: Clock, hop: PlainConnector, **settings: Any) -> Agent:
    agent = paid_agent(engine, clock, secret_key=SECRET, **settings)
    if agent.ledger.peer(HOP.id) is None:
        agent.ledger.add_peer(HOP)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    return replace(agent, outbound=hop, sleep=sleep)


def prepare(agent: Agent, **changes: Any) -> Prepare:
    fields = {
        "amount": 10_000,
        "expires_at": expiry(agent, 30),
        "condition": CONDITION,
        "destination": "g.hop.shop",
        "data": b"data",
    }
    return Prepare(**{**fields, **changes})


def check_books(agent: Agent, hop: PlainConnector) -> None:
    assert audit(agent).differences == []
    assert list(agent.ledger.holds()) == []
    assert agent.ledger.balance(HOP.id).payable == hop.claim
    assert posted(agent) == sum(each.amount for each in agent.ledger.receipts(PAYER.id))


# One condition for many packets


@pytest.mark.parametrize("differ", ["in nothing", "in data", "in expiry", "in amount"])
def test_every_packet_with_one_condition_is_charged_and_owed(
    engine: Engine, clock: Clock, differ: str
) -> None:
    together = threading.Barrier(20)
    hop = PlainConnector(before_answer=lambda: together.wait(30) and None)
    agent = forwarding_agent(engine, clock, hop)
    changes: dict[str, Callable[[int], dict[str, Any]]] = {
        "in nothing": lambda _: {},
        "in data": lambda number: {"data": bytes([number])},
        "in expiry": lambda number: {"expires_at": expiry(agent, 20 + number / 10)},
        "in amount": lambda number: {"amount": 10_000 + number * 1000},
    }
    packets = [prepare(agent, **changes[differ](number)) for number in range(20)]

    with ThreadPoolExecutor(20) as threads:
        replies = list(threads.map(lambda each: send(agent, each), packets))

    assert [code_of(reply) for reply in replies] == ["fulfilled"] * 20
    assert len(hop.packets) == 20
    assert posted(agent) == sum(each.amount for each in packets)
    check_books(agent, hop)
    # Sent again, each is answered from its receipt, and nothing is sent.
    again = [send(agent, each) for each in packets]
    assert again == replies
    assert len(hop.packets) == 20
    check_books(agent, hop)


def ask(agent: Agent, packet: Prepare) -> Fulfill | Reject:
    return decode_reply(handle(agent, PAYER, encode(packet), "request-1"))


def test_a_request_that_comes_again_meanwhile_waits_for_the_reply(
    engine: Engine, clock: Clock
) -> None:
    waits = threading.Event()
    hop = PlainConnector()
    agent = replace(forwarding_agent(engine, clock, hop), sleep=lambda _: waits.set())
    packet = prepare(agent)

    with ThreadPoolExecutor(1) as threads:
        again = []

        def send_again() -> None:
            again.append(threads.submit(ask, agent, packet))
            assert waits.wait(30)

        hop.before_answer = send_again
        first = ask(agent, packet)
        hop.before_answer = lambda: None

    assert isinstance(first, Fulfill)
    assert again[0].result() == first == ask(agent, packet)
    assert len(hop.packets) == 1
    check_books(agent, hop)


@pytest.mark.parametrize(("seconds", "code"), [(20, "R00"), (60, "fulfilled")])
def test_a_request_whose_first_attempt_has_crashed_goes_on_after_its_time(
    engine: Engine, clock: Clock, seconds: float, code: str
) -> None:
    hop = PlainConnector()
    agent = forwarding_agent(engine, clock, hop)
    packet = prepare(agent, expires_at=expiry(agent, seconds))
    agent.ledger.claim_request(PAYER.id, "request-1", sha256(encode(packet)).hexdigest(), agent.now)
    assert code_of(ask(agent, packet)) == code
    assert len(hop.packets) == (code == "fulfilled")
    check_books(agent, hop)


@pytest.mark.parametrize(
    "changes", [{"destination": "g.hop.other"}, {"amount": 10_001}, {"data": b"other"}]
)
def test_a_receipt_answers_for_no_other_packet(
    agent: Agent, clock: Clock, changes: dict[str, Any]
) -> None:
    """One event that is paid to two relays has one condition by the interop scheme."""
    hop = PlainConnector()
    agent = forwarding_agent(agent.engine, clock, hop)
    send(agent, prepare(agent))
    send(agent, prepare(agent, **changes))
    assert len(hop.packets) == 2
    check_books(agent, hop)


# Time


def after_hold(agent: Agent, seconds: float, clock: Clock) -> Agent:
    """The store takes so long to hold the amount."""
    hold = agent.ledger.hold

    def slow(*arguments: Any) -> bool:
        room = hold(*arguments)
        clock.now += seconds
        return room

    agent.ledger.hold = slow  # type: ignore[method-assign]
    return agent


@pytest.mark.parametrize(("seconds", "code"), [(1.7, "R02"), (2.9, "R02"), (3, "R00"), (9, "R00")])
def test_nothing_leaves_when_the_hold_took_all_the_time(
    sqlite: SqliteEngine, clock: Clock, seconds: float, code: str
) -> None:
    hop = PlainConnector()
    agent = after_hold(forwarding_agent(sqlite, clock, hop), seconds, clock)
    late = prepare(agent, expires_at=expiry(agent, 3 if seconds != 1.7 else 2.75))
    assert code_of(send(agent, late)) == code
    assert hop.packets == []
    check_books(agent, hop)


@pytest.mark.parametrize("seconds", [3, 5.4])
def test_nothing_is_posted_after_the_incoming_expiry(
    sqlite: SqliteEngine, clock: Clock, seconds: float
) -> None:
    def slow() -> None:
        clock.now += seconds

    agent = forwarding_agent(sqlite, clock, PlainConnector(before_answer=slow))
    assert code_of(send(agent, prepare(agent, expires_at=expiry(agent, 3)))) == "R00"
    assert posted(agent) == 0
    assert audit(agent).differences == []
    assert list(agent.ledger.holds()) == []


# Faults

FAULTS = {
    "before": Fault(StoreError),
    "after": Fault(StoreError, after=True),
    "throttled": Fault(Throttled),
    "unknown": Fault(OutcomeUnknown, after=True),
    "contended": Fault(Contended),
    "unforeseen": Fault(RuntimeError),
}
DEATHS = {"death before": Fault(Crash), "death after": Fault(Crash, after=True)}
MOST_OPERATIONS = 20


def each_fault(make: Callable[[], Engine], clock: Clock, fault: Fault) -> int:
    """Let each single operation of a forwarded packet fail in turn. How many there are."""
    for number in range(MOST_OPERATIONS):
        hop = PlainConnector()
        inner = forwarding_agent(make(), clock, hop)
        engine = FaultyEngine(inner.engine, at(number, fault))
        agent = replace(inner, engine=engine, _parts={})
        packet = prepare(agent)
        try:
            reply: Fulfill | Reject | None = send(agent, packet)
        except Crash:
            reply = None
        engine.plan = never
        if len(engine.operations) <= number:
            return number
        if reply is not None:
            assert code_of(reply) in ("fulfilled", "T00")
            assert (code_of(reply) == "fulfilled") is (hop.claim > 0)
            check_books(inner, hop)
        # A repeat finds its way, also past what a process that died has left behind.
        assert isinstance(send(agent, packet), Fulfill)
        clock.now += 60
        inner.ledger.release_expired(inner.now_ms)
        assert audit(inner).differences == []
        assert list(inner.ledger.holds()) == []
        assert len(list(inner.ledger.receipts(PAYER.id))) == 1
    pytest.fail("a forwarded packet has fewer operations than that")


@pytest.mark.parametrize("fault", [*FAULTS.values(), *DEATHS.values()], ids=[*FAULTS, *DEATHS])
def test_a_fault_at_each_operation_on_sqlite(tmp_path: Path, clock: Clock, fault: Fault) -> None:
    engines: list[SqliteEngine] = []

    def make() -> Engine:
        engines.append(SqliteEngine(tmp_path / str(len(engines)), clock=clock))
        return engines[-1]

    assert each_fault(make, clock, fault) >= 5  # rate, receipt, route, peer, hold, settlement
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("name", ["before", "after", "unknown", "death after"])
def test_a_fault_at_each_operation_on_dynamodb(
    moto_ledger: MotoLedger, clock: Clock, name: str
) -> None:
    fault = {**FAULTS, **DEATHS}[name]
    assert each_fault(lambda: moto_ledger.empty(clock), clock, fault) >= 5


@pytest.mark.parametrize("failures", [1, 3, 10])
def test_settling_is_tried_until_it_is_done(
    sqlite: SqliteEngine, clock: Clock, failures: int
) -> None:
    hop = PlainConnector()
    agent = forwarding_agent(sqlite, clock, hop)
    engine = FaultyEngine(sqlite)
    settling = iter(range(failures))
    hold = nth(0, ["transact"], Fault())  # counts transactions: the first one is the hold

    def plan(number: int, name: str) -> Fault | None:
        if name != "transact" or hold(number, name):
            return None
        return Fault() if next(settling, None) is not None else None

    engine.plan = plan
    faulty = replace(agent, engine=engine, _parts={})
    assert isinstance(send(faulty, prepare(agent)), Fulfill)
    check_books(agent, hop)


def test_settling_ends_with_the_packet(sqlite: SqliteEngine, clock: Clock) -> None:
    agent = forwarding_agent(sqlite, clock, PlainConnector())
    engine = FaultyEngine(sqlite)
    faulty = replace(agent, engine=engine, _parts={})
    began = clock.now

    def plan(_: int, name: str) -> Fault | None:
        transactions = engine.operations.count("transact")
        return (
            Fault() if name == "transact" and transactions > 1 and clock.now < 40 + began else None
        )

    engine.plan = plan
    assert code_of(send(faulty, prepare(agent))) in ("R00", "T00")
    assert began + 30 <= clock.now < began + 33
    clock.now = began + 60
    assert agent.ledger.release_expired(agent.now_ms) == 1
    assert audit(agent).differences == []


def test_a_next_hop_that_is_late_is_not_waited_for_again(
    sqlite: SqliteEngine, clock: Clock
) -> None:
    def late() -> None:
        raise OutboundTimeout("no answer")

    agent = forwarding_agent(sqlite, clock, PlainConnector(before_answer=late))
    assert code_of(send(agent, prepare(agent))) == "R00"
    assert posted(agent) == 0
    assert list(agent.ledger.holds()) == []
