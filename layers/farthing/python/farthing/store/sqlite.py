"""The table port on SQLite, for one machine: durable, with group commit and an outbox.

Concurrent writers share one commit (see `sqlite_file`). Changes of streamed tables go to an outbox
in the same transaction and come out in commit order (see `stream_after`). What lives only as long
as the process (sessions) is kept in memory.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farthing.store import sqlite_rows
from farthing.store.limits import (
    check_batch,
    check_key,
    check_query,
    check_transaction,
    check_transaction_size,
    check_write,
)
from farthing.store.memory import MemoryEngine
from farthing.store.private_files import private_folder
from farthing.store.sqlite_file import Companion, File, Parking
from farthing.store.sqlite_items import decode_item, decode_items
from farthing.store.sqlite_rows import Span, SpanKind
from farthing.store.sqlite_transactions import Transaction, batch_transaction, transaction_of
from farthing.store.table import (
    EXPIRES,
    VOLATILE,
    BatchWrite,
    ConditionFailed,
    Delete,
    Equals,
    Item,
    Key,
    Page,
    Query,
    Table,
    TransactionCancelled,
    TransactWrite,
    Write,
    is_expired,
)


@dataclass(frozen=True, slots=True)
class OutboxChange:
    """One change of a streamed table, as the outbox keeps it."""

    sequence: int
    table: Table
    pk: str
    sk: str
    old: Item | None
    new: Item | None


# Rows that the processor's cache has room for: larger pages take half as long again.
_LARGEST_PAGE = 1000
_SURELY_FITS = 2 * 1024 * 1024  # encoded bytes below which no transaction is over the limit

# A statement for many queries takes longer to begin.
_FEW_QUERIES = 3
# Bounds of a range that has none. In SQLite every blob is above every text.
_LOWEST, _HIGHEST = "", b""


def _span(query: Query) -> tuple[Span, bool]:
    """A query's range, in the direction of reading, and whether its start is left out."""
    low = _LOWEST if query.low is None else query.low
    high = _HIGHEST if query.high is None else query.high
    bound = query.high if query.backward else query.low
    first, last = (high, low) if query.backward else (low, high)
    after = query.after
    if after is not None and (
        bound is None or (after <= bound if query.backward else after >= bound)
    ):
        return Span(query.pk, after, last), True
    return Span(query.pk, first, last), False


def _range(query: Query) -> tuple[str, list[str]]:
    behind = "<" if query.backward else ">"
    tests = [
        ("pk = ?", query.pk),
        ("sk >= ?", query.low),
        ("sk <= ?", query.high),
        (f"sk {behind} ?", query.after),
    ]
    used = [(test, bound) for test, bound in tests if bound is not None]
    return " AND ".join(test for test, _ in used), [bound for _, bound in used]


class SqliteEngine:
    """See `table.Engine`. `directory` holds all there is to keep."""

    # More than DynamoDB's hundred: the sequencer then numbers many events with one commit.
    max_transaction = 1000
    # Nothing is gained by more: one list is read, and one end of it written.
    shards = 1

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        private_folder(directory)
        self.directory = directory
        self._clock = clock
        self._file = File(directory / "farthing.db", [t for t in Table if t not in VOLATILE])
        self._memory = MemoryEngine(clock=clock)

    def close(self, *, flush: bool = True) -> None:
        """Without `flush`, as a crash would leave it: what is still deferred is lost."""
        self._file.close(flush=flush)

    def flush(self) -> None:
        """Commit what is deferred or parked."""
        self._file.flush()

    def park_in(self, parking: Parking) -> None:
        """Callers that the scheduler runs wait for commits in its way, not by blocking a thread."""
        self._file.parking = parking

    def accompany(self, companion: Companion) -> None:
        """Let the companion add writes to each commit; see `numbering`."""
        self._file.companion = companion

    def _alive(self, encoded: bytes) -> Item | None:
        item = decode_item(encoded)
        return None if is_expired(item, int(self._clock())) else item

    def get(self, table: Table, pk: str, sk: str) -> Item | None:
        if table in VOLATILE:
            return self._memory.get(table, pk, sk)
        check_key(pk, sk)
        found = self._file.read(table, (pk, sk))
        return None if found is None else self._alive(found)

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]:
        if table in VOLATILE:
            return self._memory.get_many(table, keys)
        wanted = list(dict.fromkeys(keys))
        for key in wanted:
            check_key(*key)
        return sqlite_rows.get(self._file.reader, table, wanted, int(self._clock()))

    def query(self, query: Query) -> Page:
        if query.table in VOLATILE:
            return self._memory.query(query)
        check_query(query)
        where, bounds = _range(query)
        most = None if query.limit is None else min(query.limit, _LARGEST_PAGE)
        # One row more tells whether the range goes on.
        limit = -1 if most is None else most + 1
        rows = self._file.reader.execute(
            f"SELECT sk, item FROM {query.table} WHERE {where}"
            " AND (expires IS NULL OR expires > ?)"
            f" ORDER BY sk {'DESC' if query.backward else 'ASC'} LIMIT ?",
            (*bounds, int(self._clock()), limit),
        ).fetchall()
        after = None
        if most is not None and len(rows) > most:
            del rows[most:]
            after = rows[-1][0]
        items = decode_items([encoded for _, encoded in rows])
        return Page(
            list(map(sqlite_rows.new_row, zip([sk for sk, _ in rows], items, strict=True))), after
        )

    def query_many(self, queries: Sequence[Query]) -> list[Page]:
        """Those of one kind by one statement."""
        if len(queries) < _FEW_QUERIES or any(query.table in VOLATILE for query in queries):
            return [self.query(query) for query in queries]
        alike: dict[tuple[SpanKind, int | None], list[tuple[int, Span]]] = {}
        for number, query in enumerate(queries):
            check_query(query)
            span, behind = _span(query)
            kind = SpanKind(query.table, query.backward, behind)
            alike.setdefault((kind, query.limit), []).append((number, span))
        pages: dict[int, Page] = {}
        for (kind, limit), some in alike.items():
            read = self._pages(kind, [span for _, span in some], limit)
            pages.update(zip((number for number, _ in some), read, strict=True))
        return [pages[number] for number in range(len(queries))]

    def _pages(self, kind: SpanKind, spans: list[Span], limit: int | None) -> Iterator[Page]:
        most = None if limit is None else min(limit, _LARGEST_PAGE)
        # One row more tells whether the range goes on.
        at_most = -1 if most is None else most + 1
        now = int(self._clock())
        for rows in sqlite_rows.spans(self._file.reader, kind, spans, now, at_most):
            after = None
            if most is not None and len(rows) > most:
                del rows[most:]
                after = rows[-1].sk
            yield Page(rows, after)

    def write(self, write: Write) -> Item | None:
        if write.table in VOLATILE:
            return self._memory.write(write)
        check_write(write)
        try:
            result = self._file.submit(transaction_of([write], returns=True))
        except TransactionCancelled as cancelled:
            raise ConditionFailed(cancelled.current[0]) from None
        return None if result is None else decode_item(result)

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        check_batch(writes)
        kept = [write for write in writes if write.table not in VOLATILE]
        if len(kept) < len(writes):
            self._memory.write_batch([write for write in writes if write.table in VOLATILE])
        if kept and deferred:
            self._file.defer(batch_transaction(kept))
        elif kept:
            self._file.submit(batch_transaction(kept))

    def transact(self, writes: Sequence[TransactWrite]) -> None:
        if not writes:
            return
        check_transaction(writes, self.max_transaction)
        if writes[0].table in VOLATILE:
            self._memory.transact(writes)
            return
        transaction = transaction_of(writes)
        if transaction.encoded_bytes > _SURELY_FITS:
            check_transaction_size(writes)
        self._file.submit(transaction)

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        return [call() for call in calls]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What this thread reads meanwhile is what stands there now, whatever others write."""
        reader = self._file.reader
        reader.execute("BEGIN")
        try:
            reader.execute("SELECT 1 FROM consumers LIMIT 1").fetchone()  # from here on
            yield
        finally:
            reader.execute("COMMIT")

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back, from a writer's thread, after each commit that left something to stream."""
        self._file.on_commit = callback

    def stream_after(self, sequence: int, limit: int) -> list[OutboxChange]:
        rows = self._file.reader.execute(
            "SELECT sequence, tbl, pk, sk, old, new FROM outbox WHERE sequence > ?"
            " ORDER BY sequence LIMIT ?",
            (sequence, limit),
        )
        return [
            OutboxChange(
                number,
                Table(table),
                pk,
                sk,
                None if old is None else decode_item(old),
                None if new is None else decode_item(new),
            )
            for number, table, pk, sk, old, new in rows
        ]

    def stream_end(self) -> int:
        """The last change there is."""
        found = self._file.reader.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'outbox'"
        ).fetchone()
        return int(found[0]) if found else 0

    def stream_position(self, consumer: str) -> int:
        """The last change the consumer is through with. A new one starts at the oldest kept, and
        from now on nothing is forgotten before it has seen it."""
        found = self._file.reader.execute(
            "SELECT sequence FROM consumers WHERE name = ?", (consumer,)
        ).fetchone()
        if found:
            return int(found[0])

        def join(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR IGNORE INTO consumers VALUES (?, 0)", (consumer,))

        self._file.defer(Transaction(upkeep=join))
        return 0

    def stream_advance(self, positions: Mapping[str, int]) -> None:
        """Remember where the consumers are, and forget what all of them have seen.

        Rides along with the next commit: what is lost in a crash is only streamed once more.
        """
        rows = list(positions.items())

        def advance(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO consumers VALUES (?, ?)", rows)
            connection.execute(
                "DELETE FROM outbox WHERE sequence <= (SELECT min(sequence) FROM consumers)"
            )

        self._file.defer(Transaction(upkeep=advance))

    def purge_expired(self, limit: int = 1000) -> int:
        """Delete items past their time to live, as DynamoDB does in the background."""
        now, purged = int(self._clock()), self._memory.purge_expired()
        for table in Table:
            if table in VOLATILE:
                continue
            found = self._file.reader.execute(
                f"SELECT pk, sk, expires FROM {table} WHERE expires <= ? LIMIT ?", (now, limit)
            ).fetchall()
            # One by one and under condition: an item may be given more time meanwhile.
            transactions = [
                transaction_of([Delete(table, pk, sk, Equals(EXPIRES, expires))])
                for pk, sk, expires in found
            ]
            if transactions:
                self._file.defer(*transactions)
                self._file.flush()
            purged += sum(transaction.error is None for transaction in transactions)
        return purged
