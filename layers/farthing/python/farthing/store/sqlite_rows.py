"""Many rows by few statements. The interpreter is let go of once a statement, not once a row: a
thread that commits for others has to win it back every time, against all that compute meanwhile."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import orjson

from farthing.store.table import Key, Table

# Rows of one statement. Chunks are of this size, and what is left over of powers of two, so that
# few texts are prepared and all of them stay in the connection's cache.
_MOST = 128

Stored = tuple[str, str, bytes, int | None]  # partition key, sort key, item, expiry
Change = tuple[str, str, str, bytes | None, bytes | None]  # table, keys, old item, new item


def read(connection: sqlite3.Connection, table: Table, keys: Sequence[Key]) -> dict[Key, bytes]:
    """The items under these keys, as they are encoded."""
    found: dict[Key, bytes] = {}
    for part in _parts(keys):
        # Items are JSON. One row comes back, and not one an item.
        (rows,) = connection.execute(_selection(table, len(part)), _flat(part)).fetchone()
        found.update(((pk, sk), item.encode()) for pk, sk, item in orjson.loads(rows))
    return found


def put(connection: sqlite3.Connection, table: Table, rows: Iterable[Stored]) -> None:
    # In the order of the keys: neighbours in the tree are touched one after the other.
    for part in _parts(sorted(rows)):
        connection.execute(_replacement(table, len(part)), _flat(part))


def delete(connection: sqlite3.Connection, table: Table, keys: Sequence[Key]) -> None:
    for part in _parts(keys):
        connection.execute(_deletion(table, len(part)), _flat(part))


def stream(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    for part in _parts(changes):
        into = "INTO outbox (tbl, pk, sk, old, new)"
        connection.execute(_insertion(into, 5, len(part)), _flat(part))


def _parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    start, size = 0, _MOST
    while start < len(rows):
        while size > len(rows) - start:
            size //= 2
        yield rows[start : start + size]
        start += size


def _flat(rows: Iterable[Iterable[Any]]) -> list[Any]:
    return list(chain.from_iterable(rows))


def _values(columns: int, rows: int) -> str:
    row = f"({','.join('?' * columns)})"
    return f"VALUES {','.join([row] * rows)}"


@lru_cache
def _replacement(table: Table, rows: int) -> str:
    # In its place: OR REPLACE would take an item out and put it in anew.
    instead = "item = excluded.item, expires = excluded.expires"
    return f"{_insertion(f'INTO {table}', 4, rows)} ON CONFLICT (pk, sk) DO UPDATE SET {instead}"


@lru_cache
def _insertion(into: str, columns: int, rows: int) -> str:
    return f"INSERT {into} {_values(columns, rows)}"


@lru_cache
def _selection(table: Table, rows: int) -> str:
    return (
        f"WITH wanted (pk, sk) AS ({_values(2, rows)})"
        " SELECT json_group_array(json_array(pk, sk, CAST(item AS TEXT)))"
        # A cross join is not turned around: the table is looked up, never read through.
        f" FROM wanted CROSS JOIN {table} USING (pk, sk)"
    )


@lru_cache
def _deletion(table: Table, rows: int) -> str:
    return f"DELETE FROM {table} WHERE (pk, sk) IN ({_values(2, rows)})"
