"""The store fails, or the process dies, at each single operation of a message: its effect is whole
or none, a reply is true, and the same message sent again completes it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from farthing.agent.audit import audit
from farthing.btp_nips.messages import Close, Payment
from farthing.btp_nips.models import Model
from farthing.connector.subscriptions.sweeping import wake_all
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine, StoreError
from tests.ilp.paying import MotoLedger, posted, send
from tests.ledger.test_faults import FAULTS, Books, moto_books, sqlite_books
from tests.relay.world import OWNER, Clock
from tests.store.faulty import Crash, Fault, FaultyEngine, at, never
from tests.subscriptions.world import (
    NOTES,
    SUBSCRIBER,
    Subscriber,
    Wire,
    befriend,
    expect,
    joined,
    note,
    publish,
    received,
    store_notes,
    wakes_of,
)

MOST_OPERATIONS = 60


def opened(subscriber: Subscriber) -> Prepare:
    store_notes(subscriber.agent, 3)
    return subscriber.packet(subscriber.req(filters=[NOTES], model=Model.STREAMING, pull=2), 1200)


def topped_up(subscriber: Subscriber) -> Prepare:
    send(subscriber.agent, opened(subscriber))
    return subscriber.packet(subscriber.req(ttl=7200), 300)


def pulled(subscriber: Subscriber) -> Prepare:
    send(subscriber.agent, opened(subscriber))
    return subscriber.packet(subscriber.req(pull=10))


def used_up(subscriber: Subscriber) -> Prepare:
    store_notes(subscriber.agent, 25)
    subscriber.subscribe(1200, model=Model.STREAMING)
    return subscriber.packet(subscriber.req(pull=50))


def refilled(subscriber: Subscriber) -> Prepare:
    agent = subscriber.agent
    agent.purses.grant(subscriber.pubkey, 250, agent.now_ms, "grant")
    return used_up(subscriber)


def replaced(subscriber: Subscriber) -> Prepare:
    send(subscriber.agent, opened(subscriber))
    message = subscriber.req(filters=[{"kinds": [1, 7]}], model=Model.STREAMING, pull=1)
    return subscriber.packet(message, 1050)


def closed(subscriber: Subscriber) -> Prepare:
    send(subscriber.agent, opened(subscriber))
    return subscriber.packet(Close("s1", Payment(), subscriber.metadata()))


SCENARIOS: dict[str, Callable[[Subscriber], Prepare]] = {
    each.__name__: each for each in (opened, topped_up, pulled, used_up, refilled, replaced, closed)
}


def check(
    books: Books, scenario: Callable[[Subscriber], Prepare], fault: Fault, number: int
) -> None:
    subscriber = Subscriber(books.agent)
    prepare = scenario(subscriber)
    before = posted(books.agent)

    reply = books.send_with(fault, number, prepare)

    assert audit(books.agent).differences == []
    was_paid = posted(books.agent) == before + prepare.amount
    if isinstance(reply, Reject):
        assert reply.code == "T00"
        assert posted(books.agent) == before
    if isinstance(reply, Fulfill):
        assert was_paid
    again = send(books.agent, prepare)
    assert isinstance(again, Fulfill), again
    assert posted(books.agent) == before + prepare.amount
    if isinstance(reply, Fulfill):
        assert _events(reply) == _events(again)
    assert audit(books.agent).differences == []
    assert send(books.agent, prepare) == again


def _events(reply: Fulfill) -> list[str]:
    entries = orjson.loads(reply.data).get("messages", ())
    return [each["nostr"]["event"]["id"] for each in entries if each["messageType"] == 1]


def each_operation(make: Callable[[int], Books]) -> Iterator[tuple[int, Books]]:
    for number in range(MOST_OPERATIONS):
        yield number, make(number)
    pytest.fail("a message takes fewer operations than that")


@pytest.mark.parametrize(
    ("scenario", "fault"),
    [
        *((scenario, "after") for scenario in SCENARIOS),
        *(("pulled", fault) for fault in ("before", "unknown", "contended", "death after")),
        ("refilled", "death after"),
    ],
)
def test_books_balance_after_a_fault_at_each_operation_on_sqlite(
    tmp_path: Path, clock: Clock, scenario: str, fault: str
) -> None:
    operations = 0
    for number, books in each_operation(lambda n: sqlite_books(tmp_path / str(n), clock)):
        try:
            check(books, SCENARIOS[scenario], FAULTS[fault], number)
        except StopIteration:
            break
        finally:
            books.agent.engine.close(flush=False)  # type: ignore[attr-defined]
        operations += 1
    assert operations >= 4


@pytest.mark.parametrize(("scenario", "fault"), [("opened", "after"), ("pulled", "death after")])
def test_books_balance_after_a_fault_at_each_operation_on_moto(
    moto_ledger: MotoLedger, clock: Clock, scenario: str, fault: str
) -> None:
    operations = 0
    for number, books in each_operation(lambda _: moto_books(moto_ledger.empty(clock), clock)):
        try:
            check(books, SCENARIOS[scenario], FAULTS[fault], number)
        except StopIteration:
            break
        operations += 1
    assert operations >= 4


def test_the_books_can_fail(agent: Agent) -> None:
    """Credit that nobody has paid is found."""
    subscriber = Subscriber(agent)
    subscriber.subscribe(1200, model=Model.STREAMING)
    assert audit(agent).differences == []
    (found,) = agent.paid_subscriptions.all(agent.now)
    richer = replace(found, account=replace(found.account, credit=1))
    agent.engine.write(agent.paid_subscriptions.change(found, richer))
    assert audit(agent).differences != []


# Deliveries by push


def push_town(engine: Engine, clock: Clock, folder: Path) -> tuple[Agent, Agent, FaultyEngine]:
    """A relay whose engine can be made to fail, with something to deliver, and its subscriber."""
    wire, faulty = Wire(), FaultyEngine(engine)
    relay = joined(faulty, clock, wire, "relay", OWNER)
    bob = joined(SqliteEngine(folder, clock=clock), clock, wire, "bob", SUBSCRIBER)
    there, _ = befriend(relay, bob, wire)
    expect(bob, relay)
    publish(relay, note(), note())
    Subscriber(relay, SUBSCRIBER, there).subscribe(1200, model=Model.STREAMING, reply_to="g.bob")
    return relay, bob, faulty


def check_push(engine: Engine, clock: Clock, folder: Path, fault: Fault, number: int) -> bool:
    """Whether there was an operation of this number."""
    relay, bob, faulty = push_town(engine, clock, folder)
    faulty.operations.clear()
    faulty.plan = at(number, fault)
    with suppress(Crash, StoreError):
        wakes_of(relay).serve(relay)
    happened = len(faulty.operations) > number
    faulty.plan = never
    assert audit(relay).differences == []
    clock.now += 61  # the lease of whoever has died is over
    wake_all(relay)
    wakes_of(relay).serve(relay, also_later=True)
    assert len(set(received(bob, relay))) == 2
    (found,) = relay.paid_subscriptions.all(relay.now)
    assert found.account.credit == 180  # each is drawn for once
    assert found.state == "active"
    assert audit(relay).differences == []
    bob.engine.close()  # type: ignore[attr-defined]
    return happened


@pytest.mark.parametrize("fault", ["before", "after", "death before", "death after"])
def test_a_push_survives_a_fault_at_each_operation_on_sqlite(
    tmp_path: Path, clock: Clock, fault: str
) -> None:
    for number in range(MOST_OPERATIONS):
        engine = SqliteEngine(tmp_path / f"r{number}", clock=clock)
        happened = check_push(engine, clock, tmp_path / f"b{number}", FAULTS[fault], number)
        engine.close()
        if not happened:
            break
    assert number >= 8


def test_a_push_survives_a_fault_at_each_operation_on_moto(
    moto_ledger: MotoLedger, clock: Clock, tmp_path: Path
) -> None:
    for number in range(0, MOST_OPERATIONS, 3):
        engine = moto_ledger.empty(clock)
        if not check_push(engine, clock, tmp_path / f"b{number}", FAULTS["after"], number):
            break
    assert number >= 6
