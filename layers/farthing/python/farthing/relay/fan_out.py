"""Delivering new events to all matching subscriptions of every destination, at least once.

A call serves a limited number of recipients itself. It divides further recipients into parts, and
each part gets its own call. So a note for a hundred thousand subscribers is sent by many calls in
parallel, and a failed call repeats only its part.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

from farthing.context import Agent
from farthing.ports.meter import Metric
from farthing.ports.recipients import Part
from farthing.relay.destination import Destination, Source
from farthing.relay.destinations import DESTINATIONS, destinations_of
from farthing.store.changes import Change
from farthing.store.spaces import NOSTR, Space

log = logging.getLogger("farthing")

# After so many attempts, over a minute or more, a live event is too late to be useful.
_ATTEMPTS = 6

Candidates = Sequence[tuple[Any, Sequence[str]]]
# The places of events in the stream, by event id, as far as they are known.
Positions = Mapping[str, int]
_UNKNOWN: Positions = MappingProxyType({})


def fan_out_all(
    agent: Agent, events: Mapping[Space[Any], Sequence[Any]], positions: Positions = _UNKNOWN
) -> None:
    """Deliver the new events of every space to the subscriptions of that space."""
    for space, some in events.items():
        fan_out(agent, some, space, positions)


def fan_out(
    agent: Agent,
    events: Sequence[Any],
    space: Space[Any] = NOSTR,
    positions: Positions = _UNKNOWN,
) -> None:
    """Deliver events of a space to the subscriptions that get them when they are stored. A
    subscription that was opened after an event was stored finds it among the stored events."""
    _deliver(agent, events, _in_use(agent, space, Source.STORED), positions)


def push_all(agent: Agent, entries: Mapping[Space[Any], Sequence[Change]]) -> None:
    """Deliver the new entries of every log to the live subscriptions of its space."""
    for space, some in entries.items():
        push_changes(agent, some, space)


def push_changes(agent: Agent, entries: Sequence[Change], space: Space[Any] = NOSTR) -> None:
    """Deliver new entries of a space's log to the subscriptions that get events when they are
    numbered."""
    destinations = _in_use(agent, space, Source.NUMBERED)
    if destinations and entries:
        stored = agent.kept(space).events.get_many(entry.id for entry in entries)
        _deliver(agent, [event.event for event in stored.values()], destinations)


def _in_use(agent: Agent, space: Space[Any], source: Source) -> list[Destination[Any, Any]]:
    return [each for each in destinations_of(space, source) if not each.is_unused(agent)]


def _deliver(
    agent: Agent,
    events: Sequence[Any],
    destinations: Iterable[Destination[Any, Any]],
    positions: Positions = _UNKNOWN,
) -> None:
    failures = []
    for destination in destinations:
        try:
            _bring(agent, destination, events, positions)
        except Exception as failure:  # a failure does not stop the other destinations
            failures.append(failure)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("several destinations did not get their events", failures)


def _bring(
    agent: Agent,
    destination: Destination[Any, Any],
    events: Sequence[Any],
    positions: Positions,
) -> None:
    here: Candidates = destination.candidates(agent, events)
    if destination.in_parts:
        here, later = _divide(here, agent.recipients.most_at_once)
        _leave(agent, destination, later, attempt=0)
    _send(agent, destination, here, 0, positions)


def deliver_part(agent: Agent, part: Part) -> None:
    """Deliver an event to the recipients of a part that are still connected and still match it."""
    (destination,) = [each for each in DESTINATIONS if each.name == part.destination]
    event = destination.index.space.parse(part.event)
    _send(agent, destination, [(event, part.places)], part.attempt)


def _send(
    agent: Agent,
    destination: Destination[Any, Any],
    candidates: Candidates,
    attempt: int,
    positions: Positions = _UNKNOWN,
) -> None:
    wanting = destination.wanting_at(agent, candidates)
    if positions:
        wanting = [
            (event, each)
            for event, each in wanting
            if event.id not in positions
            or not (after := destination.opened_after(each))
            or positions[event.id] > after
        ]
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
    """The candidates that this call can serve, and the rest."""
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
    """Leave the recipients to later calls."""
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
