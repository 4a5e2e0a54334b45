"""New events to the subscriptions that want them, wherever those deliver. At least once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from farthing.context import Agent
from farthing.relay.destination import Destination, Source
from farthing.relay.destinations import destinations_of
from farthing.store.changes import Change
from farthing.store.spaces import NOSTR, Space


def fan_out_all(agent: Agent, events: Mapping[Space[Any], Sequence[Any]]) -> None:
    """The new events of every space, to those who subscribe to it."""
    for space, some in events.items():
        fan_out(agent, some, space)


def fan_out(agent: Agent, events: Sequence[Any], space: Space[Any] = NOSTR) -> None:
    """Bring events of a space to the subscriptions that get them as they are stored."""
    _deliver(agent, events, _in_use(agent, space, Source.STORED))


def push_all(agent: Agent, entries: Mapping[Space[Any], Sequence[Change]]) -> None:
    """The new entries of every log, to the live subscriptions of its space."""
    for space, some in entries.items():
        push_changes(agent, some, space)


def push_changes(agent: Agent, entries: Sequence[Change], space: Space[Any] = NOSTR) -> None:
    """Bring new entries of a space's log to the subscriptions that get events as numbered."""
    destinations = _in_use(agent, space, Source.NUMBERED)
    if destinations and entries:
        stored = agent.kept(space).events.get_many(entry.id for entry in entries)
        _deliver(agent, [event.event for event in stored.values()], destinations)


def _in_use(agent: Agent, space: Space[Any], source: Source) -> list[Destination[Any, Any]]:
    return [
        each for each in destinations_of(space, source) if not each.index.is_empty(agent.engine)
    ]


def _deliver(
    agent: Agent, events: Sequence[Any], destinations: Iterable[Destination[Any, Any]]
) -> None:
    failures = []
    for destination in destinations:
        try:
            wanting = destination.wanting(agent, events)
            if wanting:
                destination.deliver(agent, wanting)
        except Exception as failure:  # the other destinations do not wait for this one
            failures.append(failure)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("several destinations did not get their events", failures)
