"""Handling stored events again after a stream's consumer has failed on them.

The events are read from the tables: the stream's records are gone after a day. Each part may run
twice, and in parallel with the consumers: an event gets a number once, a client may get an event
again, and a live feed continues from its position.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from farthing.context import Agent
from farthing.relay.fan_out import fan_out, push_changes
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival, Change
from farthing.store.events import StoredEvent
from farthing.store.postings import id_in
from farthing.store.table import Query, Table, read_all

_AT_ONCE = 100
_PAGE = 1000


@dataclass(frozen=True)
class Period:
    """A period in which events were written, from the first to the last second, both included."""

    first: int
    last: int

    def has(self, second: int) -> bool:
        return self.first <= second <= self.last


def stored_in(agent: Agent, period: Period) -> Iterator[list[StoredEvent]]:
    """The events that were written in the period, in batches. Reads the index of all events."""
    for pk in agent.events.lists.everything():
        rows = read_all(agent.engine, Query(Table.POSTINGS, pk, limit=_PAGE))
        # A posting is written again when its event is sent again, so it has the latest time.
        ids = (id_in(row.sk) for row in rows if row.item["w"] >= period.first)
        while some := list(islice(ids, _AT_ONCE)):
            yield [
                event for event in agent.events.get_many(some).values() if period.has(event.written)
            ]


def number_again(agent: Agent, period: Period) -> int:
    """Number the events that have no number, oldest first. Returns how many got a number."""
    missing = [
        event
        for some in stored_in(agent, period)
        for numbers in [agent.changes.numbers_of(event.id for event in some)]
        for event in some
        if event.id not in numbers
    ]
    missing.sort(key=lambda event: (event.written, event.created_at, event.id))
    return number_events(agent, [Arrival(each.id, each.pubkey, each.kind) for each in missing])


def deliver_again(agent: Agent, period: Period) -> int:
    """Send the events to the subscriptions that match them now. Returns the number of events."""
    found = 0
    for some in stored_in(agent, period):
        fan_out(agent, [event.event for event in some])
        found += len(some)
    return found


def push_again(agent: Agent, period: Period) -> int:
    """Bring live changes feeds up to date with the events. Returns the number of events."""
    found = 0
    for some in stored_in(agent, period):
        numbers = agent.changes.numbers_of(event.id for event in some)
        entries = [
            Change(numbers[event.id], event.id, event.pubkey, event.kind)
            for event in some
            if event.id in numbers
        ]
        push_changes(agent, sorted(entries))
        found += len(entries)
    return found
