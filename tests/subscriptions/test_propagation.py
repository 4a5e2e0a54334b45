"""Subscriptions that are passed on among relays in a circle: events come from afar, none of them
twice, and the budget is never exceeded."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from unittest import mock

import pytest

from farthing.agent.audit import audit
from farthing.agent.identity import publish_identity
from farthing.btp_nips.messages import Propagation
from farthing.connector.subscriptions.sweeping import sweep_subscriptions, wake_all
from farthing.context import Agent
from farthing.ilp.packet import Code, Fulfill, Prepare, Reject
from farthing.nostr.events import Event
from farthing.relay.fan_out import push_changes
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival, Change
from farthing.store.ledger import Peer
from farthing.store.paid_subscriptions import PaidSubscriptions
from farthing.store.payment import OWNER as OWNERS
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import StoreError
from tests.ledger.test_concurrent_payers import at_once
from tests.ledger.test_faults import FAULTS
from tests.relay.world import ALICE, BOB, Clock
from tests.store.faulty import Crash, Fault, FaultyEngine, at, never
from tests.subscriptions.world import (
    NOTES,
    SUBSCRIBER,
    Subscriber,
    Wire,
    befriend,
    joined,
    note,
    publish,
    refusal,
    wakes_of,
)

NAMES = "abc"


@dataclass
class Circle:
    agents: dict[str, Agent]
    subscriber: Subscriber
    clock: Clock
    wire: Wire
    faulty: FaultyEngine  # the first relay's

    def __getitem__(self, name: str) -> Agent:
        return self.agents[name]

    def settle(self) -> None:
        """Serve everybody until nobody is woken any more."""
        while any(wakes_of(agent).waiting for agent in self.agents.values()):
            for agent in self.agents.values():
                wakes_of(agent).serve(agent, also_later=True)

    def publish(self, name: str, event: Event) -> None:
        """At one relay; and the others number what reaches them."""
        publish(self[name], event)
        self.settle()
        for agent in self.agents.values():
            if agent.events.get(event.id) is None or agent.changes.numbers_of([event.id]):
                continue
            number_events(agent, [Arrival(event.id, event.pubkey, event.kind)])
            number = agent.changes.numbers_of([event.id])[event.id]
            push_changes(agent, [Change(number, event.id, event.pubkey, event.kind)])
        self.settle()

    def spent_upstream(self) -> int:
        """What the first relay has paid the others."""
        peers = self["a"].ledger.peers()
        return sum(self["a"].ledger.balance(peer.id).payable for peer in peers)


@pytest.fixture
def circle(tmp_path: Path, clock: Clock) -> Iterator[Circle]:
    yield from a_circle(tmp_path, clock)


def a_circle(folder: Path, clock: Clock) -> Iterator[Circle]:
    wire = Wire()
    engines = {name: SqliteEngine(folder / name, clock=clock) for name in NAMES}
    faulty = FaultyEngine(engines["a"])
    over = {**engines, "a": faulty}
    agents = {
        name: joined(
            over[name], clock, wire, name, bytes([40 + number] * 32), subscription_propagate=True
        )
        for number, name in enumerate(NAMES)
    }
    for one, other in combinations(NAMES, 2):
        befriend(agents[one], agents[other], wire)
    for agent in agents.values():
        for told in publish_identity(agent):
            for other in agents.values():
                other.events.save(told, payment=OWNERS)
    client = Peer("client", "9" * 64)
    agents["a"].ledger.add_peer(client)
    yield Circle(agents, Subscriber(agents["a"], SUBSCRIBER, client), clock, wire, faulty)
    for engine in engines.values():
        engine.close()


MOST_OPERATIONS = 60
BUDGET = 6000


def spread_with(circle: Circle, fault: Fault, number: int) -> bool:
    """Have an operation fail while the first relay passes a subscription on. Whether there was one
    of this number."""
    circle.subscriber.subscribe(1160 + BUDGET, propagate=Propagation(1, BUDGET))
    circle.faulty.operations.clear()
    circle.faulty.plan = at(number, fault)
    with suppress(Crash, StoreError):
        wakes_of(circle["a"]).serve(circle["a"])
    circle.faulty.plan = never
    return len(circle.faulty.operations) > number


def after_a_crash(circle: Circle, seconds: int) -> None:
    """The first relay starts again, so much later."""
    wakes_of(circle["a"]).waiting.clear()
    circle.clock.now += seconds
    wake_all(circle["a"])
    circle.settle()


# A repeat is known for 600 seconds, its timestamp is good for 300: then the other relay is asked.
@pytest.mark.parametrize(
    ("fault", "seconds"), [("death before", 61), ("death after", 700), ("after", 400)]
)
def test_a_crash_loses_no_share_of_the_budget(
    tmp_path: Path, clock: Clock, fault: str, seconds: int
) -> None:
    for number in range(0, MOST_OPERATIONS, 2):
        with contextmanager(a_circle)(tmp_path / str(number), clock) as circle:
            happened = spread_with(circle, FAULTS[fault], number)
            after_a_crash(circle, seconds)
            (found,) = circle["a"].paid_subscriptions.all(circle["a"].now)
            assert (found.is_spread, found.offer) == (True, None)
            assert found.budget == BUDGET - found.account.spent
            taken = [
                each
                for name in "bc"
                for each in circle[name].paid_subscriptions.all(circle[name].now)
            ]
            assert len(taken) == 2
            assert found.account.spent == sum(each.terms.price for each in taken)
            assert circle.spent_upstream() <= 2320
            for agent in circle.agents.values():
                assert audit(agent).differences == []
        if not happened:
            break
    assert number >= 10


def test_what_a_silent_relay_was_to_get_waits_and_comes_back(circle: Circle) -> None:
    """No answer is no refusal: the share stays reserved until it is known what became of it."""
    silent = circle["b"].settings.own_ilp_address

    def before(_url: str, prepare: Prepare) -> Reject | None:
        is_for_it = prepare.destination == silent
        return Reject(Code.T01_PEER_UNREACHABLE, "", "nobody", b"") if is_for_it else None

    circle.wire.before = before
    circle.subscriber.subscribe(1110 + BUDGET, propagate=Propagation(1, BUDGET), ttl=600)
    wakes_of(circle["a"]).serve(circle["a"])
    (found,) = circle["a"].paid_subscriptions.all(circle["a"].now)
    assert found.offer is not None
    assert (found.budget, found.account.spent) == (BUDGET - 1110, 1110)

    circle.subscriber.close()
    assert circle["a"].purses.get(circle.subscriber.pubkey).left == BUDGET - 1110
    assert audit(circle["a"]).differences == []
    circle.clock.now += 601
    sweep_subscriptions(circle["a"])
    wakes_of(circle["a"]).serve(circle["a"], also_later=True)

    assert circle["a"].purses.get(circle.subscriber.pubkey).left == BUDGET
    assert circle.spent_upstream() == 0
    assert audit(circle["a"]).differences == []


def test_two_of_one_origin_at_once(circle: Circle) -> None:
    """They come by two ways, and neither sees the other until both are to be written."""
    relay = circle["a"]
    known = PaidSubscriptions.origin_of
    both = threading.Barrier(2, timeout=20)
    replies: list[Fulfill | Reject] = []

    def waits(store: PaidSubscriptions, origin: str) -> tuple[str, str] | None:
        found = known(store, origin)
        with suppress(threading.BrokenBarrierError):
            both.wait(2 if found else None)
        return found

    def subscribe(secret: bytes) -> None:
        one = Subscriber(relay, secret, circle.subscriber.peer)
        replies.append(one.send(one.req(filters=[NOTES], origin="c" * 64), 1160))

    with mock.patch.object(PaidSubscriptions, "origin_of", waits):
        at_once([partial(subscribe, ALICE), partial(subscribe, BOB)])

    refused = [each for each in replies if isinstance(each, Reject)]
    assert [refusal(each) for each in refused] == [("F99", "loop_detected")]
    assert len(list(relay.paid_subscriptions.all(relay.now))) == 1
    assert audit(relay).differences == []


@pytest.mark.parametrize("budget", [0, 1159, 2320, 3000, 6000])
def test_the_budget_is_never_exceeded_in_a_circle(circle: Circle, budget: int) -> None:
    answer = circle.subscriber.subscribe(1160 + budget, propagate=Propagation(3, budget))
    circle.settle()

    assert answer["credit"] == "0"
    assert circle.spent_upstream() <= budget
    (found,) = circle["a"].paid_subscriptions.all(circle["a"].now)
    assert found.budget == budget - circle.spent_upstream()
    assert found.budget >= 0
    for agent in circle.agents.values():
        assert audit(agent).differences == []
    left = found.budget
    circle.subscriber.close()
    assert circle["a"].purses.get(circle.subscriber.pubkey).left == left


def test_an_event_of_another_relay_comes_once(circle: Circle) -> None:
    circle.subscriber.subscribe(1160 + 6000, propagate=Propagation(2, 6000))
    circle.settle()
    event = note(created_at=circle["a"].now)

    circle.publish("c", event)

    assert circle.subscriber.pull().events == [event.id]
    stored = circle["a"].events.get(event.id)
    assert stored is not None
    assert stored.payment == "borrowed"
    for agent in circle.agents.values():
        assert audit(agent).differences == []


def test_what_was_not_asked_for_is_not_stored(circle: Circle) -> None:
    circle.subscriber.subscribe(1160 + 6000, propagate=Propagation(1, 6000))
    circle.settle()

    circle.publish("b", other := note(kind=7, created_at=circle["a"].now))

    assert circle["a"].events.get(other.id) is None


def test_equal_filters_share_one_subscription(circle: Circle) -> None:
    for name in ("s1", "s2"):
        circle.subscriber.subscribe(1160 + 3000, name, propagate=Propagation(1, 3000))
        circle.settle()

    assert circle.spent_upstream() == 2 * 1160
    found = {each.id: each for each in circle["a"].paid_subscriptions.all(circle["a"].now)}
    assert (found["s1"].budget, found["s2"].budget) == (3000 - 2320, 3000)


def test_our_own_key_in_the_path_is_a_loop(circle: Circle) -> None:
    path = (circle["b"].settings.pubkey, circle["a"].settings.pubkey)

    def send(**filter: object) -> tuple[str, str]:
        message = circle.subscriber.req(filters=[{**NOTES, **filter}], path=path)
        return refusal(circle.subscriber.send(message, 1160))

    assert send() == ("F99", "loop_detected")
    circle.subscriber.subscribe(1160)
    assert send() == send(kinds=[7]) == ("F99", "loop_detected")
    assert circle.subscriber.status()["credit"] == "0"


def test_an_origin_that_we_know_is_a_loop(circle: Circle) -> None:
    circle.subscriber.subscribe(1160, origin="a" * 64)
    again = circle.subscriber.req("other", [NOTES], origin="a" * 64)

    assert refusal(circle.subscriber.send(again, 1160)) == ("F99", "loop_detected")


def test_it_is_off_unless_it_is_switched_on(circle: Circle) -> None:
    agent = circle["a"]
    off = replace(agent, settings=replace(agent.settings, subscription_propagate=False))
    subscriber = Subscriber(off, SUBSCRIBER, circle.subscriber.peer)

    answer = subscriber.subscribe(1160 + 3000, propagate=Propagation(3, 3000))
    circle.settle()

    assert answer["credit"] == "3000"
    assert circle.spent_upstream() == 0
