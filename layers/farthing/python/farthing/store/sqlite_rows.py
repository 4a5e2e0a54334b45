"""Many rows with few statements. Each statement releases the interpreter lock once. A thread that
commits for others must wait for the lock each time, so one statement per row would be slow."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

from farthing.store.sqlite_items import decode_array, decode_arrays
from farthing.store.sqlite_packing import (
    PACKED,
    Part,
    pack_key,
    unpack_item,
    unpack_postings,
)
from farthing.store.table import Item, Key, Row, Table

# The most rows of one statement. The rest is divided into powers of two, so that there are few
# different statements and all of them stay in the connection's cache.
_MOST = 128

Stored = tuple[Part, Part, bytes, int | None]  # partition key, sort key, item, expiry
PackedKey = tuple[Part, Part]
Change = tuple[str, str, str, bytes | None, bytes | None]  # table, keys, old item, new item


def read(connection: sqlite3.Connection, table: Table, keys: Sequence[Key]) -> dict[Key, bytes]:
    """The encoded items under these keys."""
    found: dict[Key, bytes] = {}
    for part in _parts(keys):
        packed = [pack_key(table, *key) for key in part]
        (rows,) = connection.execute(_selection(table, len(part)), _flat(packed)).fetchone()
        for row in rows.split(",") if rows else ():
            number, digits = row.split(":")
            found[part[int(number)]] = bytes.fromhex(digits)
    return found


def standing(
    connection: sqlite3.Connection, table: Table, keys: Sequence[PackedKey]
) -> dict[PackedKey, bytes]:
    """The encoded items under keys that are packed already."""
    found: dict[PackedKey, bytes] = {}
    for part in _parts(keys):
        (rows,) = connection.execute(_selection(table, len(part)), _flat(part)).fetchone()
        for row in rows.split(",") if rows else ():
            number, digits = row.split(":")
            found[part[int(number)]] = bytes.fromhex(digits)
    return found


def get(
    connection: sqlite3.Connection, table: Table, keys: Sequence[Key], now: int
) -> dict[Key, Item]:
    """The items under these keys that have not expired."""
    found: dict[Key, Item] = {}
    for part in _parts(keys):
        packed = [pack_key(table, *key) for key in part]
        (text,) = connection.execute(_lookup(table, len(part)), [*_flat(packed), now]).fetchone()
        if text is None:
            continue
        if table in PACKED:
            for row in text.split(","):
                number, digits = row.split(":")
                key = part[int(number)]
                found[key] = unpack_item(key[0], bytes.fromhex(digits))
        else:
            numbered = decode_array(text)
            found.update(zip([part[at] for at in numbered[::2]], numbered[1::2], strict=True))
    return found


def has_plain(connection: sqlite3.Connection, table: Table) -> bool:
    """Whether any partition has a key that is not packed. Text is below every blob."""
    found = connection.execute(f"SELECT EXISTS (SELECT 1 FROM {table} WHERE pk < x'')").fetchone()
    return bool(found[0])


class Span(NamedTuple):
    """Where to read in a partition: from one sort key to another. A blob is above every text."""

    pk: Part
    start: Part
    end: Part


def spans(
    connection: sqlite3.Connection,
    kind: "SpanKind",
    names: Sequence[str],
    wanted: Sequence[Span],
    now: int,
    most: int,
) -> list[list[Row]]:
    """From each span at most `most` unexpired rows, in the direction of reading. `names` are the
    names of the partitions above this module."""
    found: list[list[Row]] = []
    for part in _parts(wanted):
        called = names[len(found) :]
        rows: list[list[Row]] = [[] for _ in part]
        (text,) = connection.execute(_spans(kind, len(part)), [*_flat(part), now, most]).fetchone()
        if kind.table in PACKED:
            for each in text.lower().split(";") if text else ():
                number, pairs = each.split("=")
                at = int(number)
                rows[at] = _unpacked(kind.table, called[at], pairs)
        else:
            for at, *pairs in decode_arrays(text or ""):
                rows[at] = list(map(new_row, zip(pairs[::2], pairs[1::2], strict=True)))
        found.extend(rows)
    return found


def _unpacked(table: Table, pk: str, pairs: str) -> list[Row]:
    split = [pair.split(":") for pair in pairs.split(",")]
    sort_keys = [digits for digits, _ in split]
    encoded = [bytes.fromhex(digits) for _, digits in split]
    if table is Table.POSTINGS:
        return list(map(new_row, zip(sort_keys, unpack_postings(encoded), strict=True)))
    return [
        Row(bytes.fromhex(digits).decode(), unpack_item(pk, each))
        for digits, each in zip(sort_keys, encoded, strict=True)
    ]


class SpanKind(NamedTuple):
    table: Table
    backward: bool
    behind: bool  # whether the start itself is excluded


# A fast way to make a Row, because a million rows may be read at once.
new_row: Callable[[tuple[str, Item]], Row] = partial(tuple.__new__, Row)


def put(connection: sqlite3.Connection, table: Table, rows: list[Stored]) -> None:
    """Write the rows, which have different keys, and sort them by key."""
    # Written in the order of the keys, so that neighbours in the tree are written together.
    try:
        rows.sort()
    except TypeError:  # some keys are packed and some are not
        rows.sort(key=_order)
    for part in _parts(rows):
        connection.execute(_replacement(table, len(part)), _flat(part))


def _order(row: Stored) -> tuple[bool, Part, Part]:
    return type(row[0]) is bytes, row[0], row[1]


def delete(connection: sqlite3.Connection, table: Table, keys: Sequence[PackedKey]) -> None:
    for part in _parts(keys):
        connection.execute(_deletion(table, len(part)), _flat(part))


def stream(connection: sqlite3.Connection, changes: Sequence[Change]) -> int:
    """Write changes to the outbox. Returns the number of the last one. Their numbers are
    consecutive, because no one else writes."""
    last = 0
    for part in _parts(changes):
        into = "INTO outbox (tbl, pk, sk, old, new)"
        last = connection.execute(_insertion(into, 5, len(part)), _flat(part)).lastrowid or 0
    return last


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
    # Updates the row in its place. OR REPLACE would delete the row and insert a new one.
    instead = "item = excluded.item, expires = excluded.expires"
    return f"{_insertion(f'INTO {table}', 4, rows)} ON CONFLICT (pk, sk) DO UPDATE SET {instead}"


@lru_cache
def _insertion(into: str, columns: int, rows: int) -> str:
    return f"INSERT {into} {_values(columns, rows)}"


@lru_cache
def _selection(table: Table, rows: int) -> str:
    return (
        f"WITH wanted (n, pk, sk) AS ({_numbered_values(2, rows)})"
        " SELECT group_concat(n || ':' || hex(item))"
        # SQLite does not reorder a cross join: it looks rows up in the table and never scans it.
        f" FROM wanted CROSS JOIN {table} USING (pk, sk)"
    )


@lru_cache
def _lookup(table: Table, rows: int) -> str:
    # Items that are stored as JSON are joined as text, so that one row comes back and is parsed
    # once. A number stands for the key, which would need quoting.
    each = "n || ':' || hex(item)" if table in PACKED else "n || ',' || CAST(item AS TEXT)"
    return (
        f"WITH wanted (n, pk, sk) AS ({_numbered_values(2, rows)})"
        f" SELECT group_concat({each})"
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
    # One row comes back. A partition without rows is NULL, and so is left out.
    if kind.table in PACKED:
        pairs = f"SELECT group_concat(hex(sk) || ':' || hex(item)) FROM ({some})"
        each = f"group_concat(n || '=' || ({pairs}), ';')"
    else:
        pairs = f"SELECT group_concat(json_quote(sk) || ',' || CAST(item AS TEXT)) FROM ({some})"
        each = f"group_concat('[' || n || ',' || ({pairs}) || ']')"
    wanted = _numbered_values(3, rows)
    return f"WITH wanted (n, pk, first, last) AS ({wanted}) SELECT {each} FROM wanted"


def _numbered_values(columns: int, rows: int) -> str:
    row = ",?" * columns
    return f"VALUES {','.join(f'({number}{row})' for number in range(rows))}"


@lru_cache
def _deletion(table: Table, rows: int) -> str:
    # From a bare list of several rows, SQLite would scan the whole table.
    return f"DELETE FROM {table} WHERE (pk, sk) IN (SELECT * FROM ({_values(2, rows)}))"
