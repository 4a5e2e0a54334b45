"""Events on loan: kept for a time, unpaid, and never in the way of those who pay."""

import pytest

from farthing.agent.audit import audit
from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter
from farthing.store.events import Outcome
from farthing.store.payment import BORROWED, OWNER, Payment
from farthing.store.table import Engine
from tests.relay.world import ALICE, BOB, START, Clock, make_agent, signed

DAY = 24 * 3600


def loan(days: int) -> Payment:
    return Payment((), BORROWED, START + days * DAY)


@pytest.fixture
def agent(engine: Engine, clock: Clock) -> Agent:
    return make_agent(engine, clock, secret_key=bytes([1] * 32).hex(), price_per_byte=10)


def found(agent: Agent, event: Event) -> bool:
    everything = agent.reader.find(Filter(authors=frozenset({event.pubkey})))
    by_kind = agent.reader.find(Filter(kinds=frozenset({event.kind})))
    ways = {
        any(each.id == event.id for each in everything),
        any(each.id == event.id for each in by_kind),
        agent.events.get(event.id) is not None,
    }
    assert len(ways) == 1, "some ways lead to it and some do not"
    return ways.pop()


@pytest.mark.parametrize("kind", [1, 0])
def test_a_borrowed_event_is_gone_when_its_loan_ends(agent: Agent, clock: Clock, kind: int) -> None:
    event = signed(kind=kind, secret=ALICE)
    assert agent.events.save(event, payment=loan(10)) is Outcome.STORED
    assert found(agent, event)
    assert audit(agent).differences == []
    clock.now = START + 10 * DAY
    assert not found(agent, event)


@pytest.mark.parametrize("kind", [1, 0])
def test_a_payment_makes_a_borrowed_event_permanent(agent: Agent, clock: Clock, kind: int) -> None:
    event = signed(kind=kind, secret=ALICE)
    agent.events.save(event, payment=loan(10))
    assert agent.events.save(event, payment=OWNER) is Outcome.STORED
    clock.now = START + 11 * DAY
    assert found(agent, event)


@pytest.mark.parametrize("kind", [1, 0])
def test_a_loan_takes_nothing_from_what_is_paid(agent: Agent, clock: Clock, kind: int) -> None:
    event = signed(kind=kind, secret=ALICE)
    agent.events.save(event, payment=OWNER)
    assert agent.events.save(event, payment=loan(10)) is Outcome.DUPLICATE
    clock.now = START + 11 * DAY
    assert found(agent, event)
    stored = agent.events.get(event.id)
    assert stored is not None
    assert stored.payment == OWNER.reference


@pytest.mark.parametrize("kind", [1, 0])
def test_a_loan_is_renewed_by_the_day(agent: Agent, clock: Clock, kind: int) -> None:
    event = signed(kind=kind, secret=ALICE)
    agent.events.save(event, payment=loan(10))
    assert agent.events.save(event, payment=loan(10)) is Outcome.DUPLICATE
    assert agent.events.save(event, payment=loan(12)) is Outcome.STORED
    clock.now = START + 11 * DAY
    assert found(agent, event)


@pytest.mark.parametrize("kind", [1, 0])
def test_what_has_gone_may_be_borrowed_again(agent: Agent, clock: Clock, kind: int) -> None:
    event = signed(kind=kind, secret=ALICE)
    agent.events.save(event, payment=loan(10))
    clock.now = START + 11 * DAY
    agent.events.save(event, payment=loan(20))
    assert found(agent, event)


def test_a_newer_version_follows_and_stays_where_one_was_paid(agent: Agent, clock: Clock) -> None:
    paid, newer = (signed(kind=0, secret=BOB, created_at=START - age) for age in (9, 5))
    agent.events.save(paid, payment=OWNER)
    assert agent.events.save(newer, payment=loan(10)) is Outcome.STORED
    assert not found(agent, paid)
    clock.now = START + 11 * DAY
    assert found(agent, newer)


def test_a_borrowed_deletion_deletes(agent: Agent) -> None:
    note = signed(kind=1, secret=ALICE)
    agent.events.save(note, payment=loan(10))
    deletion = signed(kind=5, secret=ALICE, tags=[["e", note.id]])
    agent.events.save(deletion, payment=loan(10))
    assert not found(agent, note)
    assert agent.events.save(note, payment=loan(10)) is Outcome.DELETED


@pytest.mark.parametrize("kind", [1, 0])
def test_an_event_whose_loan_has_ended_is_borrowed_again(
    agent: Agent, clock: Clock, kind: int
) -> None:
    """Also while it waits to be swept: it does not exist any more."""
    event = signed(kind=kind, secret=ALICE)
    first = Payment((), BORROWED, START + 10)
    assert agent.events.save(event, payment=first) is Outcome.STORED
    clock.now = START + 10
    assert not found(agent, event)
    again = Payment((), BORROWED, START + 20)
    assert agent.events.save(event, payment=again) is Outcome.STORED
    assert found(agent, event)
