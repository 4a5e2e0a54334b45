"""Batches of stream records: what is new in them, and which of them could not be handled."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Handler, Response, flush
from farthing.store.changes import Arrival, Change, chunk, log_space_of
from farthing.store.events import EventRecord, space_of, stored_event
from farthing.store.spaces import Space
from farthing.store.streams import parse_record
from farthing.store.table import Row, Table

log = logging.getLogger("farthing")

Record = dict[str, Any]
T = TypeVar("T")


def stream_handler(
    read: Callable[[Sequence[Record]], T], handle: Callable[[Agent, T], object]
) -> Handler:
    """A handler for stream records: `read` takes from them what `handle` needs."""
    runtime.warm_up()

    def handler(event: Event, _context: object) -> Response:
        agent = runtime.agent()
        try:
            return report_failures(event["Records"], lambda records: handle(agent, read(records)))
        finally:
            flush(agent)

    return handler


def _new(records: Sequence[Record]) -> Iterator[tuple[Space[Any], EventRecord[Any]]]:
    """Events that came into the table with these records, each with its space. A replaced tombstone
    counts as new."""
    for change in map(parse_record, records):
        was = change.old is not None and "j" in change.old
        if change.table is not Table.EVENTS or change.new is None or was:
            continue
        space = space_of(change.pk, change.sk)
        stored = None if space is None else stored_event(space, change.pk, change.new)
        if space is not None and stored is not None:
            yield space, stored


def new_events(records: Sequence[Record]) -> dict[Space[Any], list[Any]]:
    """The events that came with these records, by their space."""
    return _by_space((space, stored.event) for space, stored in _new(records))


def arrivals(records: Sequence[Record]) -> dict[Space[Any], list[Arrival]]:
    """The same, as far as numbering needs to know them."""
    return _by_space(
        (space, Arrival(stored.id, stored.pubkey, stored.kind)) for space, stored in _new(records)
    )


def new_entries(records: Sequence[Record]) -> dict[Space[Any], list[Change]]:
    """Entries of the numbered logs that came with these records, by their space."""
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
    """Handle the batch; if that fails, one by one, so that one bad record does not hold up others.

    Lambda retries from the first record that is reported, so nothing behind it is tried here. Where
    it is the first of the batch the failure is raised: only then does Lambda halve the batch, and
    at the end of its patience give up on one record and not on all that stand behind it.
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
            log.exception("a record failed")
            sequence = record["dynamodb"]["SequenceNumber"]
            return {"batchItemFailures": [{"itemIdentifier": sequence}]}
    return {"batchItemFailures": []}
