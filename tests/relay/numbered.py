"""The changes feed in a test's hands: who stores, who numbers, who pushes, and who follows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.relay.fan_out import push_changes
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival, Change
from farthing.store.table import Engine
from tests.relay.world import Client, Clock, RecordingConnections, connections_of, make_agent
from tests.store.faulty import Fault, FaultyEngine

Entry = tuple[int, str]  # number and event id
Filter = dict[str, Any]


def arrival(event: Event) -> Arrival:
    return Arrival(event.id, event.pubkey, event.kind)


class Feed:
    """What streams do behind an agent's back, when the test says so."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def store(self, *events: Event) -> None:
        for event in events:
            self.agent.events.save(event)

    def number(self, *events: Event) -> list[Change]:
        """Give the stored events their numbers; the new entries."""
        before = self.agent.changes.last_number()
        number_events(self.agent, [arrival(event) for event in events])
        return self.entries(before)

    def entries(self, since: int = 0) -> list[Change]:
        return list(self.agent.changes.between(since, self.agent.changes.last_number()))

    def push(self, entries: Sequence[Change]) -> None:
        push_changes(self.agent, entries)

    def add(self, *events: Event) -> list[Change]:
        """Stored and numbered, and nobody told."""
        self.store(*events)
        return self.number(*events)

    def publish(self, *events: Event) -> None:
        self.push(self.add(*events))


class Page(NamedTuple):
    """One answer: its entries, and what its EOSE says."""

    entries: list[Entry]
    last: int
    next: int | None  # None unless truncated

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.entries]


def entries_of(frames: Iterable[Any], subscription: str) -> list[Entry]:
    """Frames that must all be EVENTs of this subscription."""
    entries = []
    for verb, name, kind, number, event in frames:
        assert (verb, name, kind) == ("CHANGES", subscription, "EVENT")
        entries.append((number, event["id"]))
    return entries


def page_of(frames: Sequence[Any], subscription: str) -> Page:
    *events, end = frames
    assert end[:3] == ["CHANGES", subscription, "EOSE"]
    last, *more = end[3:]
    if not more:
        return Page(entries_of(events, subscription), last, None)
    (details,) = more
    assert details == {"truncated": True, "next": details["next"]}
    return Page(entries_of(events, subscription), last, details["next"])


def ask(client: Client, filter: Filter, subscription: str = "s") -> Page:
    return page_of(client.send("CHANGES", subscription, filter), subscription)


def follow(client: Client, filter: Filter) -> list[Entry]:
    """All that is there, as a client gets it who goes on from `next` until nothing is cut off."""
    entries: list[Entry] = []
    since = filter.get("since", 0)
    while True:
        page = ask(client, {**filter, "since": since})
        entries += page.entries
        if page.next is None:
            return entries
        assert page.next > since or filter.get("limit") == 0, "it would go on for ever"
        if filter.get("limit") == 0:
            return entries
        since = page.next


class LiveClient(Client):
    """A client with one live subscription, which sorts what it is sent."""

    def __init__(self, agent: Agent, connection_id: str = "live") -> None:
        super().__init__(agent, connection_id)
        self.entries: list[Entry] = []
        self.ends: list[list[Any]] = []

    def watch(self, filter: Filter, **options: Any) -> None:
        self.look(self.send("CHANGES", "live", {**filter, "live": True}, **options))

    def look(self, frames: Iterable[Any] = ()) -> list[Entry]:
        """Everything so far, whether or not EOSE was in between."""
        for frame in [*frames, *connections_of(self.agent).take(self.id)]:
            assert frame[:2] == ["CHANGES", "live"]
            if frame[2] == "EVENT":
                self.entries += entries_of([frame], "live")
            else:
                self.ends.append([*frame, len(self.entries)])
        return self.entries

    def check(self, expected: Sequence[Entry]) -> None:
        """All of it, once, in order, and cut by one EOSE exactly where its number says."""
        assert self.look() == list(expected)
        ((*_, kind, last, before),) = self.ends
        assert kind == "EOSE"
        numbers = [number for number, _ in self.entries]
        assert numbers[:before] == [number for number in numbers if number <= last]


class Moments:
    """An engine and clients that count every moment at which something else may happen: before
    each operation and before each post. `at(n, deed)` does it there, once."""

    def __init__(self, engine: Engine, clock: Clock, **settings: Any) -> None:
        self.engine = FaultyEngine(engine, self._before)
        connections = RecordingConnections()
        connections.before_post = lambda: self._pass("post")
        agent = make_agent(self.engine, clock, **settings)
        self.agent = replace(agent, connections=connections)
        # Someone else's container: the same tables and clients, no moments of its own.
        self.other = replace(agent, connections=connections, engine=engine)
        self.passed: list[str] = []
        self._deeds: dict[int, Callable[[], Any]] = {}

    def begin(self, deeds: dict[int, Callable[[], Any]] | None = None) -> None:
        self.passed.clear()
        self._deeds = dict(deeds or {})

    def _before(self, _: int, name: str) -> Fault | None:
        return self._pass(name)

    def _pass(self, name: str) -> Fault | None:
        """A deed may also be to have the operation fail, or to raise from a post."""
        number = len(self.passed)
        self.passed.append(name)
        deed = self._deeds.pop(number, None)
        if deed is None:
            return None
        connections = connections_of(self.agent)
        quiet, connections.before_post = connections.before_post, lambda: None
        try:
            outcome = deed()
        finally:
            connections.before_post = quiet
        return outcome if isinstance(outcome, Fault) else None
