"""The store fails, or the process dies, at each single operation of a paid write: event and payment
are both there or both not, a reply is always true, and the same packet sent again completes it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from farthing.agent.audit import audit
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.nostr.events import Event
from farthing.nostr.kinds import Keeping
from farthing.store.ledger import Hold, Ledger
from farthing.store.receipts import Receipt, Stored
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Contended, Engine, OutcomeUnknown, StoreError, Throttled
from tests.ilp.paying import (
    PAYER,
    MotoLedger,
    assert_fulfilled,
    dump,
    packet,
    paid_agent,
    pay,
    posted,
    send,
)
from tests.relay.world import START, Clock, signed
from tests.store.faulty import Crash, Fault, FaultyEngine, at

NOTE = signed(tags=[["t", "x"], ["e", "c" * 64]])
OLD = signed(kind=0, tags=[["t", "old"]])
NEW = signed(kind=0, tags=[["t", "new"]], created_at=START + 1)
ARTICLE = signed(kind=30023, tags=[["d", "x"]])
DELETION = signed(
    kind=5,
    created_at=START + 9,
    tags=[["e", NOTE.id], ["e", OLD.id], ["a", f"30023:{ARTICLE.pubkey}:x"]],
)
EPHEMERAL = signed(kind=20001)

SCENARIOS: dict[str, tuple[Sequence[Event], Event]] = {
    "note": ([], NOTE),
    "first version": ([], ARTICLE),
    "next version": ([OLD], NEW),
    "deletion": ([NOTE, OLD, ARTICLE], DELETION),
    "ephemeral": ([], EPHEMERAL),
}
FAULTS = {
    "before": Fault(StoreError),
    "after": Fault(StoreError, after=True),
    "halfway": Fault(Throttled, written=2),
    "unknown": Fault(OutcomeUnknown, after=True),
    "contended": Fault(Contended),
    "unforeseen": Fault(RuntimeError),
    "death before": Fault(Crash),
    "death after": Fault(Crash, after=True),
}
MOST_OPERATIONS = 30


@dataclass
class Books:
    """An agent whose engine can be made to fail; after a death it comes up again."""

    agent: Agent
    restart: Callable[[], Agent]

    def send_with(self, fault: Fault, number: int, prepare: Prepare) -> Fulfill | Reject | None:
        """The reply, None if the process died; raises StopIteration behind the last operation."""
        engine = FaultyEngine(self.agent.engine, at(number, fault))
        try:
            reply = send(replace(self.agent, engine=engine), prepare)
        except Crash:
            self.agent = self.restart()
            return None
        if len(engine.operations) <= number:
            raise StopIteration
        return reply


def sqlite_books(folder: Path, clock: Clock) -> Books:
    engines: list[SqliteEngine] = []

    def start() -> Agent:
        if engines:
            engines[-1].close(flush=False)
        engines.append(SqliteEngine(folder, clock=clock))
        return paid_agent(engines[-1], clock)

    return Books(start(), start)


def moto_books(engine: Engine, clock: Clock) -> Books:
    return Books(paid_agent(engine, clock), lambda: paid_agent(engine, clock))


def is_committed(agent: Agent, event: Event) -> bool:
    """Whether event and payment are there: both, or neither."""
    paid = any(receipt.purpose.mark == event.id for receipt in agent.ledger.receipts(PAYER.id))
    if event.keeping is not Keeping.EPHEMERAL:
        assert (agent.events.get(event.id) is not None) is paid
    assert posted(agent) == sum(each.amount for each in agent.ledger.receipts(PAYER.id))
    assert audit(agent).differences == []
    return paid


def check(books: Books, before: Sequence[Event], event: Event, fault: Fault, number: int) -> None:
    for each in before:
        assert isinstance(pay(books.agent, each), Fulfill)
    prepare = packet(books.agent, event)
    standing = dump(books.agent.engine)

    reply = books.send_with(fault, number, prepare)

    committed = is_committed(books.agent, event)
    if isinstance(reply, Fulfill):
        assert_fulfilled(reply, prepare)
        assert committed
        assert_deleted(books.agent, before, event)
    if isinstance(reply, Reject):
        assert reply.code == "T00"
        assert not committed
        assert dump(books.agent.engine) == standing
    # sent again, it comes to its end, paid for once
    assert_fulfilled(send(books.agent, prepare), prepare)
    assert is_committed(books.agent, event)
    assert_deleted(books.agent, before, event)
    assert len(list(books.agent.ledger.receipts(PAYER.id))) == len(before) + 1


def assert_deleted(agent: Agent, before: Sequence[Event], event: Event) -> None:
    if event is DELETION or event is NEW:
        assert [each for each in before if agent.events.get(each.id) is not None] == []


def each_operation(make: Callable[[int], Books]) -> Iterator[tuple[int, Books]]:
    for number in range(MOST_OPERATIONS):
        yield number, make(number)
    pytest.fail("a paid write has fewer operations than that")


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize(("before", "event"), SCENARIOS.values(), ids=SCENARIOS)
def test_books_balance_after_a_fault_at_each_operation_on_sqlite(
    tmp_path: Path, clock: Clock, before: Sequence[Event], event: Event, fault: Fault
) -> None:
    operations = 0
    for number, books in each_operation(lambda n: sqlite_books(tmp_path / str(n), clock)):
        try:
            check(books, before, event, fault, number)
        except StopIteration:
            break
        finally:
            books.agent.engine.close(flush=False)  # type: ignore[attr-defined]
        operations += 1
    assert operations >= 5  # rate, receipt, balance, event, and the transaction


@pytest.mark.parametrize(
    ("scenario", "fault"),
    [("note", "before"), ("note", "after"), ("note", "death after"), ("next version", "after")],
)
def test_books_balance_after_a_fault_at_each_operation_on_moto(
    moto_ledger: MotoLedger, clock: Clock, scenario: str, fault: str
) -> None:
    before, event = SCENARIOS[scenario]
    operations = 0
    for number, books in each_operation(lambda _: moto_books(moto_ledger.empty(clock), clock)):
        try:
            check(books, before, event, FAULTS[fault], number)
        except StopIteration:
            break
        operations += 1
    assert operations >= 5


# Holds: whatever happens to one, it does not survive its packet


def receipt_of(hold: Hold) -> Receipt:
    purpose = Stored("", 20001, 1)
    return Receipt(hold.peer, "c" * 64, "00", "author", hold.amount, 0, 0, purpose)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("fails", ["hold", "post", "release", "sweep"])
def test_a_hold_is_posted_once_or_gone_after_its_expiry(
    engine: Engine, fails: str, fault: Fault
) -> None:
    faulty = FaultyEngine(engine)
    ledger = Ledger(faulty)
    hold = Hold("ann", "0" * 64, 70, 5000)
    along = Ledger(engine).payment(receipt_of(hold), 100).writes[:1]
    steps: list[tuple[str, Callable[[], object]]] = [
        ("hold", lambda: ledger.hold(hold, 100)),
        ("release", lambda: fails == "release" and ledger.release(hold)),
        ("post", lambda: ledger.post(hold, along)),
        ("sweep", lambda: ledger.release_expired(5000)),
    ]
    for name, step in steps:
        if name == fails:
            number = len(faulty.operations) + (8 if name == "sweep" else 0)
            faulty.plan = at(number, fault)
        try:
            step()
        except (Crash, StoreError, RuntimeError):
            break  # whoever was at work is gone

    left = Ledger(engine)
    left.release_expired(4999)  # not yet
    left.release_expired(5000)

    balance = left.balance("ann")
    paid = sum(receipt.amount for receipt in left.receipts("ann"))
    assert (balance.pending, balance.posted, balance.owed) == (0, paid, paid)
    assert list(left.holds()) == []
    assert left.release(hold) is False
    assert left.post(hold) is False
    assert left.balance("ann") == balance


def test_the_checks_above_can_fail(clock: Clock, tmp_path: Path) -> None:
    """A relay that stored first and took the payment afterwards would be caught."""
    books = sqlite_books(tmp_path, clock)
    books.agent.events.save(NOTE)
    with pytest.raises(AssertionError):
        is_committed(books.agent, NOTE)
    books.agent.engine.close()  # type: ignore[attr-defined]
