"""Open negentropy syncs: the data for answering their next message in any container.

The set of a sync is only in the memory of the container that made it. Another container reads the
set again from the postings. To get the same set, it is defined by the time at which its postings
were written. Postings of the last seconds are listed by name, because more of them may still
arrive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import orjson

from farthing.nostr.filters import Filter, parse_filter
from farthing.store.postings import id_in
from farthing.store.table import (
    EXPIRES,
    Add,
    ConditionFailed,
    Delete,
    Engine,
    Equals,
    Item,
    LessThan,
    Put,
    Query,
    Table,
    read_all,
)

_SYNC = "n#"
_BEHIND_SYNCS = "n$"  # '$' follows '#'
# A posting is readable at the latest this many seconds after its time of writing.
_SETTLED_SECONDS = 10
# More names would make the record expensive; then the set is defined by the second alone.
_MOST_RECENT = 4000
# The part of an id that names a posting. A client that makes two ids with the same part only closes
# its own sync.
_MARK = 8
# The extra life of a record, so that few messages have to write it again.
_SPARE_SECONDS = 60
# A close is remembered for as long as an open sent before it can still be on its way.
_CLOSE_SECONDS = 60


@dataclass(frozen=True)
class Sync:
    connection_id: str
    id: str
    order: int
    filters: Sequence[Filter]
    pubkeys: frozenset[
        str
    ]  # the client's authenticated keys, which decide the private events in the set
    opened: int  # second
    recent: bytes | None  # marks of members written shortly before; None if they were too many
    fingerprint: str  # of the whole set: shows whether the set is still the same

    @property
    def settled(self) -> int:
        """The second up to which all written postings were readable."""
        return self.opened if self.recent is None else settled_at(self.opened)

    def names(self, sk: str) -> bool:
        """Whether a posting is one of those written shortly before the sync was opened."""
        return _mark(sk) in self._marks

    @cached_property
    def _marks(self) -> frozenset[bytes]:
        marks = self.recent or b""
        return frozenset(marks[at : at + _MARK] for at in range(0, len(marks), _MARK))


def settled_at(opened: int) -> int:
    return opened - _SETTLED_SECONDS


def marks_of(sort_keys: Sequence[str]) -> bytes | None:
    return None if len(sort_keys) > _MOST_RECENT else b"".join(map(_mark, sort_keys))


def _mark(sk: str) -> bytes:
    return bytes.fromhex(id_in(sk)[: 2 * _MARK])


class Syncs:
    def __init__(self, engine: Engine, idle_seconds: int, *, in_order: bool = False) -> None:
        self._engine = engine
        self._life = idle_seconds
        self._in_order = in_order  # messages of a connection are handled in order

    def open(self, sync: Sync, now: int) -> int:
        """Open or replace a sync, unless a later message has already settled it.

        Returns the order of the message that is now valid: the sync's own, or a later one.
        """
        item = {
            "o": sync.order,
            "f": orjson.dumps([filter.as_dict() for filter in sync.filters]).decode(),
            "a": sorted(sync.pubkeys),
            "t": sync.opened,
            "r": sync.recent,
            "h": sync.fingerprint,
            EXPIRES: now + self._life + _SPARE_SECONDS,
        }
        return self._settle(sync.connection_id, sync.id, sync.order, item)

    def close(self, connection_id: str, sync_id: str, order: int, now: int) -> None:
        if self._in_order:
            self._engine.write(Delete(Table.SESSIONS, *_key(connection_id, sync_id)))
        else:
            closed = {"o": order, EXPIRES: now + _CLOSE_SECONDS}
            self._settle(connection_id, sync_id, order, closed)

    def _settle(self, connection_id: str, sync_id: str, order: int, item: Item) -> int:
        key = _key(connection_id, sync_id)
        try:
            self._engine.write(Put(Table.SESSIONS, *key, item, LessThan("o", order + 1)))
        except ConditionFailed as failure:
            return int(failure.current["o"]) if failure.current else order + 1
        return order

    def visit(self, connection_id: str, sync_id: str, now: int) -> Sync | None:
        """The open sync. Its time is prolonged."""
        key = _key(connection_id, sync_id)
        while True:
            item = self._engine.get(Table.SESSIONS, *key)
            if item is None or "f" not in item:
                return None
            try:
                self._prolong(key, item, now)
            except ConditionFailed:
                continue  # closed or replaced between the two
            return _sync(connection_id, sync_id, item)

    def _prolong(self, key: tuple[str, str], item: Item, now: int) -> None:
        if item[EXPIRES] < now + self._life:
            assign = {EXPIRES: now + self._life + _SPARE_SECONDS}
            unchanged = Equals("o", item["o"])
            self._engine.write(Add(Table.SESSIONS, *key, {}, assign, unchanged))

    def open_ids(self, connection_id: str) -> set[str]:
        pk, low = _key(connection_id, "")
        rows = read_all(self._engine, Query(Table.SESSIONS, pk, low, _BEHIND_SYNCS))
        return {row.sk.removeprefix(_SYNC) for row in rows if "f" in row.item}


def _key(connection_id: str, sync_id: str) -> tuple[str, str]:
    # The item is in the connection's partition, so it is deleted with the connection.
    return f"c#{connection_id}", _SYNC + sync_id


def _sync(connection_id: str, sync_id: str, item: Item) -> Sync:
    return Sync(
        connection_id,
        sync_id,
        item["o"],
        tuple(parse_filter(value) for value in orjson.loads(item["f"])),
        frozenset(item["a"]),
        item["t"],
        item["r"],
        item["h"],
    )
