"""Batches of stream records: what is new in them, and which of them could not be handled."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.handlers.calls import Event as CallEvent
from farthing.handlers.calls import Handler, Response, flush
from farthing.nostr.events import Event
from farthing.store.changes import Arrival, Change, chunk
from farthing.store.events import StoredEvent, stored_event
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

    def handler(event: CallEvent, _context: object) -> Response:
        agent = runtime.agent()
        try:
            return report_failures(event["Records"], lambda records: handle(agent, read(records)))
        finally:
            flush(agent)

    return handler


def _new(records: Sequence[Record]) -> Iterator[StoredEvent]:
    """Events that came into the table with these records. A replaced tombstone counts as new."""
    for record in records:
        change = parse_record(record)
        was = change.old is not None and "j" in change.old
        if change.table is Table.EVENTS and change.new is not None and not was:
            stored = stored_event(change.pk, change.new)
            if stored is not None:
                yield stored


def new_events(records: Sequence[Record]) -> list[Event]:
    return [stored.event for stored in _new(records)]


def arrivals(records: Sequence[Record]) -> list[Arrival]:
    """The same, as far as numbering needs to know them."""
    return [Arrival(stored.id, stored.pubkey, stored.kind) for stored in _new(records)]


def new_entries(records: Sequence[Record]) -> list[Change]:
    """Entries of the numbered log that came with these records."""
    changes = map(parse_record, records)
    return [
        entry
        for change in changes
        if change.table is Table.CHANGES and change.pk.startswith("log#") and change.new
        for entry in chunk(Row(change.sk, change.new))
    ]


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
        log.exception("a batch of %d records failed, taking them one by one", len(records))
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
