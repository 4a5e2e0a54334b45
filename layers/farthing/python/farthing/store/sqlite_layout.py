"""The layout of the SQLite file, and the way from an older one to today's.

`PRAGMA user_version` has the number of the layout:

    0    the sort keys of postings begin with 10 digits of time
    1    with 16 digits
    2    lists that every event enters are no longer spread over shards

A migration goes on in small commits. One that was interrupted is taken up at the next start.
"""

import sqlite3
from collections.abc import Iterable

from farthing.store.table import Key, StoreError, Table

LAYOUT = 2

# Their items lie one after the other as they come, beside an index of their keys. In the tree of
# the keys itself, where all others have them, so few would share a page that the tree of a million
# events is nine levels deep: to find one takes longer, and to store a million a fifth longer.
_OF_LARGE_ITEMS = {Table.EVENTS, Table.LEDGER}
_ROWS_AT_ONCE = 20_000
_NARROW_KEY = 10 + 64
_SHARDED = ("k#", "z#")
_WIDER = "ffffff"  # ten digits that count down from 2**40 - 1, as sixteen that do from 2**64 - 1


class NewerLayout(StoreError):
    """The file was written by a later version of this software."""


def prepare(connection: sqlite3.Connection, tables: Iterable[Table]) -> None:
    """Make the tables where there are none, and bring older ones to today's layout."""
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    if layout > LAYOUT:
        raise NewerLayout(f"expected a file of layout {LAYOUT} or older, got layout {layout}")
    _create(connection, tables)
    if layout < LAYOUT:
        _move_postings(connection)
        connection.execute(f"PRAGMA user_version = {LAYOUT}")


def _move_postings(connection: sqlite3.Connection) -> None:
    """Walks the postings in the order of their keys. A row that moves ahead is met once more, and
    then stands where it belongs."""
    place = ("", "")
    while True:
        rows = connection.execute(
            f"SELECT pk, sk FROM {Table.POSTINGS} WHERE (pk, sk) > (?, ?) ORDER BY pk, sk LIMIT ?",
            (*place, _ROWS_AT_ONCE),
        ).fetchall()
        if not rows:
            return
        place = rows[-1]
        moves = [(*_todays_key(*key), *key) for key in rows if _todays_key(*key) != key]
        if moves:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                f"UPDATE OR REPLACE {Table.POSTINGS} SET pk = ?, sk = ? WHERE pk = ? AND sk = ?",
                moves,
            )
            connection.execute("COMMIT")


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
