"""The newest events of one list, found with one statement, in the form in which processes pass them
on. To read the postings first and then their events takes twice as long."""

import sqlite3
from typing import Final

from farthing.store.answers import PassedEvent
from farthing.store.events import event_key
from farthing.store.spaces import NOSTR
from farthing.store.sqlite_packing import Part, passed_event
from farthing.store.table import Table

_TIME_OCTETS: Final = 8
_, _EVENT = event_key(NOSTR, "")
_NEWEST: Final = (
    "SELECT listed.sk, kept.item FROM"
    f" (SELECT sk FROM {Table.POSTINGS} WHERE pk = ?1 AND sk >= ?2 AND sk <= ?3"
    "   AND (expires IS NULL OR expires > ?4) ORDER BY sk LIMIT ?5) AS listed"
    f" LEFT JOIN {Table.EVENTS} AS kept"
    f"   ON kept.pk = substr(listed.sk, {_TIME_OCTETS + 1}) AND kept.sk = '{_EVENT}'"
    "   AND (kept.expires IS NULL OR kept.expires > ?4)"
)


def newest_events(
    connection: sqlite3.Connection,
    within: tuple[Part, Part, Part],
    now: int,
    most: int,
    most_octets: int,
) -> list[PassedEvent] | None:
    """The events of a range of packed postings: the list, the lowest and the highest sort key. None
    if one of the events is not there, or if together they have more octets."""
    found, octets = [], 0
    for sort_key, encoded in connection.execute(_NEWEST, (*within, now, most)):
        event = None if encoded is None else passed_event(sort_key[_TIME_OCTETS:], encoded)
        if event is None:
            return None
        octets += len(event.octets)
        if octets > most_octets:
            return None
        found.append((sort_key, event))
    return [event for _, event in sorted(found)]  # a join has no order of its own
