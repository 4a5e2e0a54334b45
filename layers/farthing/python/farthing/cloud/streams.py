"""Batches of stream records: what is new in them, and which of them could not be handled."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from farthing.nostr.events import Event
from farthing.store.events import stored_event
from farthing.store.streams import parse_record
from farthing.store.table import Table

log = logging.getLogger("farthing")

Record = dict[str, Any]


def new_events(records: Sequence[Record]) -> list[Event]:
    """Events that came into the table with these records. A replaced tombstone counts as new."""
    events = []
    for record in records:
        change = parse_record(record)
        was = change.old is not None and "j" in change.old
        if change.table is Table.EVENTS and change.new is not None and not was:
            stored = stored_event(change.pk, change.new)
            if stored is not None:
                events.append(stored.event)
    return events


def report_failures(
    records: Sequence[Record], handle: Callable[[Sequence[Record]], None]
) -> dict[str, Any]:
    """Handle the batch; if that fails, one by one, so that one bad record does not hold up others.

    Lambda retries from the first record that is reported, so nothing behind it is tried here.
    """
    try:
        handle(records)
    except Exception:
        log.exception("a batch of %d records failed, taking them one by one", len(records))
        return _one_by_one(records, handle)
    return {"batchItemFailures": []}


def _one_by_one(
    records: Sequence[Record], handle: Callable[[Sequence[Record]], None]
) -> dict[str, Any]:
    for record in records:
        try:
            handle([record])
        except Exception:
            log.exception("a record failed")
            sequence = record["dynamodb"]["SequenceNumber"]
            return {"batchItemFailures": [{"itemIdentifier": sequence}]}
    return {"batchItemFailures": []}
