"""Fan-out reaches every kind of destination, each by its own index, and by its own space."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from farthing.context import Agent
from farthing.nostr.filters import Filter, parse_filter
from farthing.relay import destinations
from farthing.relay.destination import Destination, Source
from farthing.relay.destinations import DESTINATIONS
from farthing.relay.fan_out import fan_out, fan_out_all, push_all, push_changes
from farthing.relay.sequence import number_events
from farthing.store import subscriptions
from farthing.store.changes import Arrival, Change
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from farthing.store.subscription_index import Index
from farthing.store.subscriptions import FEEDS, Feed, Subscription
from farthing.store.table import VOLATILE, Put, Table
from tests.relay.world import Client, Clock, connections_of, hex_id, made, make_agent
from tests.store.other_format import TICKS, Tick, TickFilter


@dataclass(frozen=True)
class Durable:
    """A subscription that outlives connections, as one that is paid for."""

    name: str
    filters: tuple[Filter, ...]


class DurableDestination:
    """Keeps its subscriptions and their hints in the ledger, and remembers whom it would wake."""

    def __init__(self, source: Source = Source.NUMBERED) -> None:
        self.index = Index(Table.LEDGER, "test", NOSTR, listed=True)
        self.woken: list[tuple[str, str]] = []
        self.failure: Exception | None = None
        self.destination = Destination("durable", source, self.index, self.open_at, self.deliver)

    def subscribe(self, agent: Agent, name: str, filter: dict[str, Any]) -> None:
        hints = [
            Put(Table.LEDGER, pk, sk, {})
            for pk, sk in self.index.hints([parse_filter(filter)], name)
        ]
        agent.engine.transact([Put(Table.LEDGER, f"test#{name}", "s", {"f": filter}), *hints])

    def open_at(self, agent: Agent, places: Collection[str]) -> dict[str, Durable]:
        keys = [(f"test#{place}", "s") for place in places]
        return {
            pk.removeprefix("test#"): Durable(pk, (parse_filter(item["f"]),))
            for (pk, _), item in agent.engine.get_many(Table.LEDGER, keys).items()
        }

    def deliver(self, agent: Agent, wanting: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.woken.extend((subscription.name, event.id) for event, subscription in wanting)


def parse_tick_filter(value: Any) -> Any:
    return WrittenTickFilter(kinds=frozenset(value["kinds"]))


class WrittenTickFilter(TickFilter):
    def as_dict(self) -> dict[str, object]:
        return {"kinds": sorted(self.kinds or ())}


TICK_FEED: Feed[Tick] = Feed("x", Index(Table.SESSIONS, "i", TICKS), parse_tick_filter)


def deliver_ticks(agent: Agent, wanting: Any) -> None:
    for event, subscription in wanting:
        agent.connections.post(subscription.connection_id, [f'["TICK",{event.to_json()}]'])


TICK_SOCKETS: Destination[Tick, Subscription] = Destination(
    "tick socket",
    Source.STORED,
    TICK_FEED.index,
    lambda agent, places: agent.subscriptions.open_at(places),
    deliver_ticks,
)


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> DurableDestination:
    added = DurableDestination()
    everywhere = (*DESTINATIONS, added.destination, TICK_SOCKETS)
    monkeypatch.setattr(destinations, "DESTINATIONS", everywhere)
    monkeypatch.setattr(subscriptions, "FEEDS", (*FEEDS, TICK_FEED))
    return added


def entry(agent: Agent, number: int, **changes: Any) -> Change:
    event = made(id=hex_id(number), **changes)
    agent.events.save(event)
    number_events(agent, [Arrival(event.id, event.pubkey, event.kind)])
    return Change(number, event.id, event.pubkey, event.kind)


def test_one_that_gets_numbered_events(agent: Agent, durable: DurableDestination) -> None:
    durable.subscribe(agent, "one", {"kinds": [1]})
    durable.subscribe(agent, "other", {"kinds": [7]})
    entries = [entry(agent, 1), entry(agent, 2, kind=7), entry(agent, 3, kind=9)]

    fan_out(agent, [made(kind=1)])
    assert durable.woken == []
    push_all(agent, {NOSTR: entries})

    assert durable.woken == [("test#one", hex_id(1)), ("test#other", hex_id(2))]


def test_one_that_gets_events_as_they_are_stored(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = DurableDestination(Source.STORED)
    monkeypatch.setattr(destinations, "DESTINATIONS", (*DESTINATIONS, durable.destination))
    durable.subscribe(agent, "one", {"kinds": [1]})
    client = Client(agent)
    client.send("REQ", "x", {"kinds": [1]})
    event = made()

    fan_out(agent, [event])

    assert durable.woken == [("test#one", event.id)]
    assert [frame[:2] for frame in connections_of(agent).take(client.id)] == [["EVENT", "x"]]


def test_a_durable_index_outlives_the_process(
    tmp_path: Path, clock: Clock, durable: DurableDestination
) -> None:
    engine = SqliteEngine(tmp_path, clock=clock)
    durable.subscribe(make_agent(engine, clock), "one", {"kinds": [1]})
    engine.close()

    assert durable.index.table not in VOLATILE
    agent = make_agent(SqliteEngine(tmp_path, clock=clock), clock)
    push_changes(agent, [entry(agent, 1)])

    assert durable.woken == [("test#one", hex_id(1))]


def test_an_unused_destination_costs_one_request(
    agent: Agent, durable: DurableDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(durable.destination.index, "interested", lambda *_: asked.append(1) or ())

    push_changes(agent, [entry(agent, 1)])

    assert asked == []


def test_one_that_fails_does_not_keep_the_others_from_theirs(
    agent: Agent, durable: DurableDestination
) -> None:
    """And it is raised, so that the record is handled once more."""
    second = DurableDestination()
    destinations.DESTINATIONS = (durable.destination, second.destination)
    durable.subscribe(agent, "one", {})
    durable.failure = RuntimeError("no")

    with pytest.raises(RuntimeError):
        push_changes(agent, [entry(agent, 1)])

    assert second.woken == [("test#one", hex_id(1))]


class TestSpaces:
    def test_each_event_to_the_sockets_of_its_space(
        self, agent: Agent, durable: DurableDestination
    ) -> None:
        nostr, ticks = Client(agent, "nostr"), Client(agent, "ticks")
        nostr.send("REQ", "x", {})
        filters = (WrittenTickFilter(kinds=frozenset([1])),)
        agent.subscriptions.subscribe(Subscription(ticks.id, "x", 2, filters, TICK_FEED), agent.now)
        note = made(id=hex_id(1))
        tick = Tick(hex_id(1), "a" * 64, agent.now * 10**9)

        fan_out_all(agent, {NOSTR: [note], TICKS: [tick]})

        assert [frame[0] for frame in connections_of(agent).take(nostr.id)] == ["EVENT"]
        assert [frame[0] for frame in connections_of(agent).take(ticks.id)] == ["TICK"]

    def test_a_connection_that_goes_leaves_nothing_of_either(
        self, agent: Agent, durable: DurableDestination
    ) -> None:
        client = Client(agent)
        client.send("REQ", "x", {})
        filters = (WrittenTickFilter(kinds=frozenset([1])),)
        agent.subscriptions.subscribe(
            Subscription(client.id, "y", 2, filters, TICK_FEED), agent.now
        )

        agent.sessions.disconnect(client.id)

        tick = Tick(hex_id(1), "a" * 64, agent.now * 10**9)
        assert TICK_SOCKETS.wanting(agent, [tick]) == []
        assert agent.subscriptions.ids(client.id) == set()
