"""Subscriptions that are passed on among relays in a circle: events come from afar, none of them
twice, and the budget is never exceeded."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import pytest

from farthing.agent.audit import audit
from farthing.agent.identity import publish_identity
from farthing.btp_nips.messages import Propagation
from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.relay.fan_out import push_changes
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival, Change
from farthing.store.ledger import Peer
from farthing.store.payment import OWNER as OWNERS
from farthing.store.sqlite import SqliteEngine
from tests.relay.world import Clock
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
            if agent.events.get(event.id) is None or agent.changes.number_of(event.id):
                continue
            number_events(agent, [Arrival(event.id, event.pubkey, event.kind)])
            number = agent.changes.number_of(event.id)
            assert number is not None
            push_changes(agent, [Change(number, event.id, event.pubkey, event.kind)])
        self.settle()

    def spent_upstream(self) -> int:
        """What the first relay has paid the others."""
        peers = self["a"].ledger.peers()
        return sum(self["a"].ledger.balance(peer.id).payable for peer in peers)


@pytest.fixture
def circle(tmp_path: Path, clock: Clock) -> Iterator[Circle]:
    wire = Wire()
    engines = {name: SqliteEngine(tmp_path / name, clock=clock) for name in NAMES}
    agents = {
        name: joined(
            engines[name], clock, wire, name, bytes([40 + number] * 32), subscription_propagate=True
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
    yield Circle(agents, Subscriber(agents["a"], SUBSCRIBER, client), clock)
    for engine in engines.values():
        engine.close()


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
    message = circle.subscriber.req(filters=[NOTES], path=path)

    assert refusal(circle.subscriber.send(message, 1160)) == ("F99", "loop_detected")


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
