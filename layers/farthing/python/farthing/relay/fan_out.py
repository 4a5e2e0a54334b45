"""New events to the subscriptions that want them, wherever those deliver. At least once.

A call serves so many recipients by itself. Of more, it makes parts, and leaves each part to a call
of its own: a note for a hundred thousand subscribers is sent by many calls side by side, and a call
that fails repeats its part and not the whole.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from farthing.context import Agent
from farthing.ports.meter import Metric
from farthing.ports.recipients import Part
from farthing.relay.destination import Destination, Source
from farthing.relay.destinations import DESTINATIONS, destinations_of
from farthing.store.changes import Change
from farthing.store.spaces import NOSTR, Space

log = logging.getLogger("farthing")

# After so many attempts, over a minute or more, an event that is only wanted live is too late.
_ATTEMPTS = 6

Candidates = Sequence[tuple[Any, Sequence[str]]]


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
            _bring(agent, destination, events)
        except Exception as failure:  # the other destinations do not wait for this one
            failures.append(failure)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("several destinations did not get their events", failures)


def _bring(agent: Agent, destination: Destination[Any, Any], events: Sequence[Any]) -> None:
    here: Candidates = destination.index.candidates(agent.engine, events)
    if destination.in_parts:
        here, later = _divide(here, agent.recipients.most_at_once)
        _leave(agent, destination, later, attempt=0)
    _send(agent, destination, here, attempt=0)


def deliver_part(agent: Agent, part: Part) -> None:
    """Bring an event to those of a part's recipients that are still there and want it."""
    (destination,) = [each for each in DESTINATIONS if each.name == part.destination]
    event = destination.index.space.parse(part.event)
    _send(agent, destination, [(event, part.places)], part.attempt)


def _send(
    agent: Agent, destination: Destination[Any, Any], candidates: Candidates, attempt: int
) -> None:
    wanting = destination.wanting_at(agent, candidates)
    missed = destination.deliver(agent, wanting) if wanting else ()
    if missed and attempt + 1 >= _ATTEMPTS:
        log.warning("gave up on %d deliveries after %d attempts", len(missed), _ATTEMPTS)
        agent.meter.count(Metric.DELIVERIES_GIVEN_UP, len(missed))
    elif missed:
        places: dict[str, tuple[Any, list[str]]] = {}
        for event, place in missed:
            places.setdefault(event.id, (event, []))[1].append(place)
        _leave(agent, destination, list(places.values()), attempt + 1)


def _divide(candidates: Candidates, most: int) -> tuple[Candidates, Candidates]:
    """Those whose recipients one call can serve, all together; and the rest."""
    here, later = [], []
    for event, places in candidates:
        if len(places) <= most:
            most -= len(places)
            here.append((event, places))
        else:
            later.append((event, places))
    return here, later


def _leave(
    agent: Agent, destination: Destination[Any, Any], candidates: Candidates, attempt: int
) -> None:
    """To later calls."""
    parts = [
        Part(destination.name, event.to_json(), some, attempt)
        for event, places in candidates
        for some in _chunks(places, agent.recipients.most_at_once)
    ]
    if parts:
        agent.recipients.put(parts)


def _chunks(places: Iterable[str], most: int) -> Iterator[list[str]]:
    waiting = iter(places)
    while some := list(islice(waiting, most)):
        yield some
