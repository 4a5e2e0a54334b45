"""The layout of the SQLite file, and the way from an older one to today's.

`PRAGMA user_version` has the number of the layout:

    0    the sort keys of postings begin with 10 digits of time
    1    with 16 digits
    2    lists that every event enters are no longer spread over shards
    3    keys and items of most rows are packed (see `sqlite_packing`)
    103  the same, while rows of older tables are still being moved

A migration sets the older tables aside and moves their rows in small commits. One that was
interrupted is taken up at the next start.
"""

import sqlite3
from collections.abc import Iterable

from farthing.store import sqlite_rows
from farthing.store.sqlite_items import decode_items
from farthing.store.sqlite_packing import PACKED, pack_item, pack_key
from farthing.store.table import Key, StoreError, Table

LAYOUT = 3
_MOVING = 100 + LAYOUT  # older versions refuse a file during the migration

# In these tables the rows are stored in the order of their arrival, with a separate index of their
# keys. Other tables store rows in the tree of the keys. These items are so large that few would
# share a page of that tree, and with a million events it would be nine levels deep: finding an
# event would take longer, and storing a million a fifth longer.
_OF_LARGE_ITEMS = {Table.EVENTS, Table.LEDGER}
_ROWS_AT_ONCE = 20_000
_PAGES_AT_ONCE = 20_000
_NARROW_KEY = 10 + 64
_SHARDED = ("k#", "z#")
# Makes ten digits that count down from 2**40 - 1 into sixteen that count down from 2**64 - 1.
_WIDER = "ffffff"
_ASIDE = "older_"  # prefix of older tables while their rows are moved


class NewerLayout(StoreError):
    """The file was written by a later version of this software."""


def prepare(connection: sqlite3.Connection, tables: Iterable[Table]) -> None:
    """Make the tables where there are none, and bring older ones to today's layout."""
    wanted = list(tables)
    layout = layout_of(connection)
    if layout > LAYOUT and layout != _MOVING:
        raise NewerLayout(f"expected a file of layout {LAYOUT} or older, got layout {layout}")
    if layout < LAYOUT:
        _set_aside(connection, wanted)
    _create(connection, wanted)
    if layout != LAYOUT:
        for table in wanted:
            if table in PACKED:
                _move(connection, table)
        connection.execute(f"PRAGMA user_version = {LAYOUT}")
        _give_room_back(connection)


def layout_of(connection: sqlite3.Connection) -> int:
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    return int(layout)


def _set_aside(connection: sqlite3.Connection, tables: Iterable[Table]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if layout_of(connection) < LAYOUT:  # no other process was first
        for table in tables:
            if table in PACKED and _exists(connection, table):
                connection.execute(f"ALTER TABLE {table} RENAME TO {_ASIDE}{table}")
                connection.execute(f"DROP INDEX IF EXISTS {table}_expires")
        connection.execute(f"PRAGMA user_version = {_MOVING}")
    connection.execute("COMMIT")


def _exists(connection: sqlite3.Connection, name: str) -> bool:
    sql = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?)"
    return bool(connection.execute(sql, (name,)).fetchone()[0])


def _move(connection: sqlite3.Connection, table: Table) -> None:
    """Move some rows in each commit, so that every row is always in exactly one of the tables."""
    older = _ASIDE + table
    while True:
        connection.execute("BEGIN IMMEDIATE")
        if not _exists(connection, older):
            connection.execute("COMMIT")
            return
        rows = connection.execute(
            f"SELECT pk, sk, item, expires FROM {older} ORDER BY pk, sk LIMIT ?", (_ROWS_AT_ONCE,)
        ).fetchall()
        if rows:
            # A file of a version before JSON was kept as octets may have it as text.
            items = decode_items(
                [bytes(item, "utf-8") if isinstance(item, str) else item for _, _, item, _ in rows]
            )
            moved = []
            for (pk, sk, _, expires), item in zip(rows, items, strict=True):
                key = _todays_key(pk, sk) if table is Table.POSTINGS else (pk, sk)
                moved.append((*pack_key(table, *key), pack_item(table, key[0], item), expires))
            sqlite_rows.put(connection, table, moved)
            last = rows[-1]
            connection.execute(f"DELETE FROM {older} WHERE (pk, sk) <= (?, ?)", last[:2])
        else:
            connection.execute(f"DROP TABLE {older}")
        connection.execute("COMMIT")


def _give_room_back(connection: sqlite3.Connection) -> None:
    """Free the pages of the older tables, a part at a time."""
    while connection.execute("PRAGMA freelist_count").fetchone()[0]:
        before = connection.execute("PRAGMA freelist_count").fetchone()
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})").fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if connection.execute("PRAGMA freelist_count").fetchone() == before:
            return  # a file without incremental vacuum


def _todays_key(pk: str, sk: str) -> Key:
    if len(sk) == _NARROW_KEY:
        sk = _WIDER + sk
    if pk.startswith(_SHARDED):
        pk = f"{pk.rpartition('#')[0]}#0"
    return pk, sk


def _create(connection: sqlite3.Connection, tables: Iterable[Table]) -> None:
    for table in tables:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (pk TEXT NOT NULL, sk TEXT NOT NULL,"
            f" item BLOB NOT NULL, expires INTEGER, PRIMARY KEY (pk, sk)){_kind_of(table)}"
        )
        connection.execute(
            f"CREATE INDEX IF NOT EXISTS {table}_expires ON {table} (expires)"
            " WHERE expires IS NOT NULL"
        )
    connection.execute(
        "CREATE TABLE IF NOT EXISTS outbox (sequence INTEGER PRIMARY KEY AUTOINCREMENT,"
        " tbl TEXT NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL, old BLOB, new BLOB)"
    )
    connection.execute(
        "CREATE TABLE IF NOT EXISTS consumers (name TEXT PRIMARY KEY, sequence INTEGER)"
    )


def _kind_of(table: Table) -> str:
    return "" if table in _OF_LARGE_ITEMS else " WITHOUT ROWID"
