"""The store fails, or the process dies, at each single operation of a message: its effect is whole
or none, a reply is true, and the same message sent again completes it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from farthing.agent.audit import audit
from farthing.btp_nips.messages import Close, Model, Payment
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject
from tests.ilp.paying import MotoLedger, posted, send
from tests.ledger.test_faults import FAULTS, Books, moto_books, sqlite_books
from tests.relay.world import Clock
from tests.store.faulty import Fault
from tests.subscriptions.world import NOTES, Subscriber, store_notes

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
def test_on_sqlite(tmp_path: Path, clock: Clock, scenario: str, fault: str) -> None:
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
def test_on_moto(moto_ledger: MotoLedger, clock: Clock, scenario: str, fault: str) -> None:
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
