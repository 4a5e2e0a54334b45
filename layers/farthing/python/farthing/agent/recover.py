"""Stored events that a stream's consumer has given up on, handled after all.

They are found in the tables and not in the stream, whose records are gone after a day. Each part
may be done twice, and beside the consumers themselves: a number is given once, a client may see an
event again, and a live feed goes on from where it is.
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
class Span:
    """Seconds between which events were written, both included."""

    first: int
    last: int

    def has(self, second: int) -> bool:
        return self.first <= second <= self.last


def stored_in(agent: Agent, span: Span) -> Iterator[list[StoredEvent]]:
    """The events that were written then, some at a time. Reads the index of everything."""
    for pk in agent.events.lists.everything():
        rows = read_all(agent.engine, Query(Table.POSTINGS, pk, limit=_PAGE))
        # A posting is written again when its event is sent again: its time is the latest.
        ids = (id_in(row.sk) for row in rows if row.item["w"] >= span.first)
        while some := list(islice(ids, _AT_ONCE)):
            yield [
                event for event in agent.events.get_many(some).values() if span.has(event.written)
            ]


def number_again(agent: Agent, span: Span) -> int:
    """Number the events that have no number, oldest first. How many those were."""
    missing = [
        event
        for some in stored_in(agent, span)
        for numbers in [agent.changes.numbers_of(event.id for event in some)]
        for event in some
        if event.id not in numbers
    ]
    missing.sort(key=lambda event: (event.written, event.created_at, event.id))
    return number_events(agent, [Arrival(each.id, each.pubkey, each.kind) for each in missing])


def deliver_again(agent: Agent, span: Span) -> int:
    """Send the events to the subscriptions that want them now. How many were looked at."""
    found = 0
    for some in stored_in(agent, span):
        fan_out(agent, [event.event for event in some])
        found += len(some)
    return found


def push_again(agent: Agent, span: Span) -> int:
    """Bring live changes feeds up to date with the events. How many were looked at."""
    found = 0
    for some in stored_in(agent, span):
        numbers = agent.changes.numbers_of(event.id for event in some)
        entries = [
            Change(numbers[event.id], event.id, event.pubkey, event.kind)
            for event in some
            if event.id in numbers
        ]
        push_changes(agent, sorted(entries))
        found += len(entries)
    return found
