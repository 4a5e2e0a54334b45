"""Open negentropy syncs: what it takes to answer their next message in any container.

The set of a sync is kept nowhere. It is read again from the postings where it is not at hand: that
costs a fraction of what writing it down would, and most syncs never change the container. So that
it is the same set again, it is defined by when its postings were written; those of the last
seconds, of which more may still be on their way, are named one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from farthing.nostr.filters import Filter, parse_filter
from farthing.store.table import (
    EXPIRES,
    Add,
    ConditionFailed,
    Delete,
    Engine,
    Item,
    LessThan,
    Put,
    Query,
    Table,
    read_all,
)

_SYNC = "n#"


@dataclass(frozen=True, slots=True)
class Sync:
    connection_id: str
    id: str
    order: int
    filters: Sequence[Filter]
    opened: int  # second
    recent: Sequence[str]  # sort keys of members written shortly before
    size: int
    fingerprint: str  # of the whole set: tells whether it is still the same

    @property
    def key(self) -> tuple[str, str]:
        return sync_key(self.connection_id, self.id)


def sync_key(connection_id: str, sync_id: str) -> tuple[str, str]:
    return f"c#{connection_id}", _SYNC + sync_id


class Syncs:
    def __init__(self, engine: Engine, idle_seconds: int) -> None:
        self._engine = engine
        self._life = idle_seconds

    def open(self, sync: Sync, now: int) -> bool:
        """Open or replace a sync; False if a later message has already settled it."""
        item = {
            "o": sync.order,
            "f": orjson.dumps([filter.as_dict() for filter in sync.filters]).decode(),
            "t": sync.opened,
            "r": "".join(sync.recent),
            "n": sync.size,
            "h": sync.fingerprint,
            EXPIRES: now + self._life,
        }
        return self._settle(sync.connection_id, sync.id, sync.order, item)

    def close(self, connection_id: str, sync_id: str, order: int, now: int) -> None:
        self._settle(connection_id, sync_id, order, {"o": order, EXPIRES: now + self._life})

    def _settle(self, connection_id: str, sync_id: str, order: int, item: Item) -> bool:
        key = sync_key(connection_id, sync_id)
        try:
            self._engine.write(Put(Table.SESSIONS, *key, item, LessThan("o", order + 1)))
        except ConditionFailed:
            return False
        return True

    def forget(self, connection_id: str, sync_id: str) -> None:
        self._engine.write(Delete(Table.SESSIONS, *sync_key(connection_id, sync_id)))

    def visit(self, connection_id: str, sync_id: str, now: int) -> Sync | None:
        """The open sync, which has now been heard of again."""
        key = sync_key(connection_id, sync_id)
        assign = {EXPIRES: now + self._life}
        item = self._engine.get(Table.SESSIONS, *key)
        if item is None or "f" not in item:
            return None
        self._engine.write(Add(Table.SESSIONS, *key, {}, assign))
        return _sync(connection_id, sync_id, item)

    def open_ids(self, connection_id: str) -> set[str]:
        query = Query(Table.SESSIONS, f"c#{connection_id}", low=_SYNC, high=_SYNC + "\U0010ffff")
        rows = read_all(self._engine, query)
        return {row.sk.removeprefix(_SYNC) for row in rows if "f" in row.item}


_SORT_KEY = 74  # characters


def _sync(connection_id: str, sync_id: str, item: Item) -> Sync:
    keys = item["r"]
    return Sync(
        connection_id,
        sync_id,
        item["o"],
        tuple(parse_filter(value) for value in orjson.loads(item["f"])),
        item["t"],
        [keys[at : at + _SORT_KEY] for at in range(0, len(keys), _SORT_KEY)],
        item["n"],
        item["h"],
    )
