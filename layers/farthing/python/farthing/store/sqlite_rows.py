"""Many rows by few statements. The interpreter is let go of once a statement, not once a row: a
thread that commits for others has to win it back every time, against all that compute meanwhile."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

import orjson

from farthing.store.sqlite_items import decode_array, decode_arrays
from farthing.store.table import Item, Key, Row, Table

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


def get(
    connection: sqlite3.Connection, table: Table, keys: Sequence[Key], now: int
) -> dict[Key, Item]:
    """The items under these keys that have not expired."""
    found: dict[Key, Item] = {}
    for part in _parts(keys):
        (text,) = connection.execute(_lookup(table, len(part)), [*_flat(part), now]).fetchone()
        if text is not None:
            numbered = decode_array(text)
            found.update(zip([part[at] for at in numbered[::2]], numbered[1::2], strict=True))
    return found


class Span(NamedTuple):
    """Where to read in a partition: from one sort key to another. A blob is above every text."""

    pk: str
    start: str | bytes
    end: str | bytes


def spans(
    connection: sqlite3.Connection, kind: "SpanKind", wanted: Sequence[Span], now: int, most: int
) -> list[list[Row]]:
    """Of each span up to so many rows that have not expired, in the direction of reading."""
    found: list[list[Row]] = []
    for part in _parts(wanted):
        rows: list[list[Row]] = [[] for _ in part]
        (text,) = connection.execute(_spans(kind, len(part)), [*_flat(part), now, most]).fetchone()
        for at, *pairs in decode_arrays(text or ""):
            rows[at] = list(map(new_row, zip(pairs[::2], pairs[1::2], strict=True)))
        found.extend(rows)
    return found


class SpanKind(NamedTuple):
    table: Table
    backward: bool
    behind: bool  # whether the start itself is left out


# What Row(sk, item) ends in, without the way there: lists of a million rows are read at once.
new_row: Callable[[tuple[str, Item]], Row] = partial(tuple.__new__, Row)


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
def _lookup(table: Table, rows: int) -> str:
    # The items are JSON already: put together as text, they are parsed once, and one row comes
    # back. A number stands for the key, which would have to be quoted.
    return (
        f"WITH wanted (n, pk, sk) AS ({_numbered_values(2, rows)})"
        " SELECT group_concat(n || ',' || CAST(item AS TEXT))"
        f" FROM wanted CROSS JOIN {table} USING (pk, sk) WHERE expires IS NULL OR expires > ?"
    )


@lru_cache
def _spans(kind: SpanKind, rows: int) -> str:
    start, end = ("<", ">") if kind.backward else (">", "<")
    now, most = 3 * rows + 1, 3 * rows + 2  # behind the parameters of the spans
    some = (
        f"SELECT sk, item FROM {kind.table} AS kept WHERE kept.pk = wanted.pk"
        f" AND sk {start}{'' if kind.behind else '='} wanted.first AND sk {end}= wanted.last"
        f" AND (expires IS NULL OR expires > ?{now})"
        f" ORDER BY sk {'DESC' if kind.backward else 'ASC'} LIMIT ?{most}"
    )
    pairs = f"SELECT group_concat(json_quote(sk) || ',' || CAST(item AS TEXT)) FROM ({some})"
    # One row comes back. A partition of which nothing is found is NULL and not part of it.
    return (
        f"WITH wanted (n, pk, first, last) AS ({_numbered_values(3, rows)})"
        f" SELECT group_concat('[' || n || ',' || ({pairs}) || ']') FROM wanted"
    )


def _numbered_values(columns: int, rows: int) -> str:
    row = ",?" * columns
    return f"VALUES {','.join(f'({number}{row})' for number in range(rows))}"


@lru_cache
def _deletion(table: Table, rows: int) -> str:
    return f"DELETE FROM {table} WHERE (pk, sk) IN ({_values(2, rows)})"
