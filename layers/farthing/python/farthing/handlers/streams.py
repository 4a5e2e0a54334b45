"""Batches of stream records: the new items in them, and the records that could not be handled."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Handler, Response, flush
from farthing.store.changes import Arrival, Change, chunk, log_space_of
from farthing.store.events import EventRecord, space_of, stored_event
from farthing.store.spaces import Space
from farthing.store.streams import Record as HandedOver
from farthing.store.streams import StreamChange, parse_record
from farthing.store.table import Row, Table

log = logging.getLogger("farthing")

Record = dict[str, Any]
T = TypeVar("T")


def stream_handler(
    read: Callable[[Sequence[Record]], T], handle: Callable[[Agent, T], object]
) -> Handler:
    """A handler for stream records. `read` extracts from them the input of `handle`."""
    runtime.warm_up()

    def handler(event: Event, _context: object) -> Response:
        agent = runtime.agent()
        try:
            return report_failures(event["Records"], lambda records: handle(agent, read(records)))
        finally:
            flush(agent)

    return handler


class _New(NamedTuple):
    space: Space[Any]
    stored: EventRecord[Any]
    sequence: str


def _new(records: Sequence[Record]) -> Iterator[_New]:
    """The new events in these records, each with its space. An event in place of a tombstone is
    new."""
    for record in records:
        change = parse_record(record)
        was = change.old is not None and "j" in change.old
        if change.table is Table.EVENTS and change.new is not None and not was:
            found = event_in(record, change)
            if found is not None:
                yield _New(*found, change.sequence)


def event_in(record: Record, change: StreamChange) -> tuple[Space[Any], EventRecord[Any]] | None:
    """The event in the table after a change, with its space. It is parsed once for all handlers in
    this process."""
    if isinstance(record, HandedOver) and record.stored is not None:
        known: tuple[Space[Any], EventRecord[Any]] = record.stored
        return known
    space = None if change.new is None else space_of(change.pk, change.sk)
    if space is None or change.new is None:
        return None
    stored = stored_event(space, change.pk, change.new)
    if stored is None:
        return None
    if isinstance(record, HandedOver):
        record.stored = space, stored
    return space, stored


class NewEvents(NamedTuple):
    """The new events of a batch: the events by space, and their places in the stream by event
    id."""

    events: dict[Space[Any], list[Any]]
    positions: dict[str, int]


def placed_events(records: Sequence[Record]) -> NewEvents:
    new = list(_new(records))
    return NewEvents(
        _by_space((each.space, each.stored.event) for each in new),
        {each.stored.id: int(each.sequence) for each in new},
    )


def arrivals(records: Sequence[Record]) -> dict[Space[Any], list[Arrival]]:
    """The new events, with the fields that numbering needs."""
    return _by_space(
        (space, Arrival(stored.id, stored.pubkey, stored.kind))
        for space, stored, _ in _new(records)
    )


def new_entries(records: Sequence[Record]) -> dict[Space[Any], list[Change]]:
    """The new entries of the numbered logs in these records, by space."""
    return _by_space(
        (space, entry)
        for change in map(parse_record, records)
        if change.table is Table.CHANGES and change.new
        for space in [log_space_of(change.pk)]
        if space is not None
        for entry in chunk(Row(change.sk, change.new))
    )


def _by_space(pairs: Iterable[tuple[Space[Any], T]]) -> dict[Space[Any], list[T]]:
    found: dict[Space[Any], list[T]] = {}
    for space, each in pairs:
        found.setdefault(space, []).append(each)
    return found


def report_failures(
    records: Sequence[Record], handle: Callable[[Sequence[Record]], object]
) -> dict[str, Any]:
    """Handle the batch. If that fails, handle the records one by one, so that one bad record does
    not hold up the others.

    Lambda retries from the first reported record on, so later records are not tried here. If the
    first record of the batch fails, the failure is raised. Only then does Lambda halve the batch,
    and in the end it gives up one record instead of the whole batch.
    """
    try:
        handle(records)
    except Exception:
        log.exception("a batch failed: its records are tried one by one")
        return _one_by_one(records, handle)
    return {"batchItemFailures": []}


def _one_by_one(
    records: Sequence[Record], handle: Callable[[Sequence[Record]], object]
) -> dict[str, Any]:
    for number, record in enumerate(records):
        try:
            handle([record])
        except Exception:
            if number == 0:
                raise
            sequence = record["dynamodb"]["SequenceNumber"]
            log.exception("a record failed", extra={"sequence": sequence})
            return {"batchItemFailures": [{"itemIdentifier": sequence}]}
    return {"batchItemFailures": []}
