"""The table port on SQLite, for one machine: durable, with group commit and an outbox.

Concurrent writers share one commit (see `sqlite_file`). Changes of streamed tables go to an outbox
in the same transaction and come out in commit order (see `stream_after`). Volatile tables
(sessions) are kept in memory.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock

from farthing.store.limits import (
    check_batch,
    check_key,
    check_transaction,
    check_transaction_size,
    check_write,
)
from farthing.store.memory import MemoryEngine
from farthing.store.private_files import private_folder
from farthing.store.recall import Recall
from farthing.store.sqlite_file import Companion, File, Parking
from farthing.store.sqlite_outbox import OutboxChange
from farthing.store.sqlite_packing import unpack_item, unpack_partition
from farthing.store.sqlite_reads import SqliteReads
from farthing.store.sqlite_transactions import (
    State,
    Transaction,
    batch_transaction,
    transaction_of,
)
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

_SURELY_FITS = 2 * 1024 * 1024  # encoded bytes below which no transaction is over the limit


def _changed(state: State) -> tuple[set[str], set[Key]]:
    """The lists that a commit has changed, and the keys of events that it has replaced or
    deleted."""
    lists = state.lists
    changes = ((place, old) for place, old, _ in state.changes if old is not None)
    return lists, {(pk, sk) for (table, pk, sk), _ in changes if table is Table.EVENTS}


class SqliteEngine(SqliteReads):
    """See `table.Engine`. `directory` has all files of the store."""

    # More than DynamoDB's hundred: the sequencer then numbers many events with one commit.
    max_transaction = 1000

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        private_folder(directory)
        self.directory = directory
        self._clock = clock
        self.path = directory / "farthing.db"
        self._file: File = File(self.path, [t for t in Table if t not in VOLATILE])
        self._recalled_end = 0
        # The last change up to which the outbox was read, and the number that `OtherWriters.seen`
        # had when it was last read to its end.
        self._streamed_end, self._streamed_seen = 0, -1
        self._positions: dict[str, int] = {}  # of consumers, since the start
        self._positions_wait = False  # for the next commit
        self._positions_mutex = Lock()
        self._memory = MemoryEngine(clock=clock)

    def close(self, *, flush: bool = True) -> None:
        """Close the files. Without `flush`, deferred writes are lost, as in a crash."""
        self._file.close(flush=flush)

    def flush(self) -> None:
        """Commit deferred and parked writes."""
        self._file.flush()

    def park_in(self, parking: Parking) -> None:
        """Callers that the scheduler runs are parked while they wait for a commit, and block no
        thread."""
        self._file.parking = parking

    def accompany(self, companion: Companion) -> None:
        """Let the companion add writes to each commit; see `numbering`."""
        self._file.companion = companion

    def recall(self, most: int) -> Recall | None:
        """A cache of recent reads, of at most `most` bytes. None if writes of other processes
        cannot be noticed."""
        others = self._file.others
        if most <= 0 or not others.can_tell:
            return None
        recall = Recall(most, clock=self._clock, others=others.seen)

        def forget(state: State) -> None:
            recall.forget(*_changed(state))
            if state.last_change:
                self._recalled_end = state.last_change

        self._file.on_change = forget
        return recall

    def _alive(self, pk: str, encoded: bytes) -> Item | None:
        item = unpack_item(pk, encoded)
        return None if is_expired(item, int(self._clock())) else item

    def get(self, table: Table, pk: str, sk: str) -> Item | None:
        if table in VOLATILE:
            return self._memory.get(table, pk, sk)
        check_key(pk, sk)
        found = self._file.read(table, (pk, sk))
        return None if found is None else self._alive(pk, found)

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]:
        if table in VOLATILE:
            return self._memory.get_many(table, keys)
        return super().get_many(table, keys)

    def query(self, query: Query) -> Page:
        if query.table in VOLATILE:
            return self._memory.query(query)
        return super().query(query)

    def query_many(self, queries: Sequence[Query]) -> list[Page]:
        if any(query.table in VOLATILE for query in queries):
            return [self.query(query) for query in queries]
        return super().query_many(queries)

    def write(self, write: Write) -> Item | None:
        if write.table in VOLATILE:
            return self._memory.write(write)
        check_write(write)
        try:
            result = self._file.submit(transaction_of([write], returns=True))
        except TransactionCancelled as cancelled:
            raise ConditionFailed(cancelled.current[0]) from None
        return None if result is None else result.item

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        kept = [write for write in writes if write.table not in VOLATILE]
        if not kept:
            self._memory.write_batch(writes)
            return
        check_batch(writes)
        if len(kept) < len(writes):
            self._memory.write_batch([write for write in writes if write.table in VOLATILE])
        if deferred:
            self._file.defer(batch_transaction(kept))
        else:
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

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each commit with changes to stream, in a writer's thread."""
        self._file.on_commit = callback

    def stream_after(self, sequence: int, limit: int) -> list[OutboxChange]:
        recent = self._file.recent.after(sequence, limit)
        last = recent[-1].sequence if recent else sequence
        if len(recent) == limit or self._is_newest(last):
            return recent
        # After this process's own changes, there may be changes of another process.
        seen = self._file.others.seen()
        limit -= len(recent)
        others = self._stream_from_file(last, limit)
        # Also if there were none: consumers that are behind this one have changes to read.
        self._streamed_end = max(self._streamed_end, others[-1].sequence if others else last)
        if len(others) < limit and self._file.others.can_tell:
            self._streamed_seen = seen
        return recent + others

    def _is_newest(self, sequence: int) -> bool:
        """Whether no change can have come after this one: the file was read to its end, and since
        then no other process has written."""
        if sequence < max(self._streamed_end, self._file.recent.last):
            return False
        return self._streamed_seen == self._file.others.seen()

    def _stream_from_file(self, sequence: int, limit: int) -> list[OutboxChange]:
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
                None if old is None else unpack_item(pk, old),
                None if new is None else unpack_item(pk, new),
            )
            for number, table, pk, sk, old, new in rows
        ]

    def stream_goes_on(self, sequence: int) -> bool:
        """Whether this process has committed changes after this one."""
        return self._file.recent.last > sequence

    def found_end(self) -> int:
        """The last change that every read sees, also from the cache; 0 if it is unknown. Right
        after a commit, the cache may still have the former state."""
        return self._recalled_end

    def stream_end(self) -> int:
        """The number of the last change."""
        found = self._file.reader.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'outbox'"
        ).fetchone()
        return int(found[0]) if found else 0

    def stream_position(self, consumer: str) -> int:
        """The last change that the consumer has handled. A new consumer starts with the oldest
        stored change, and from then on no change is deleted before the consumer has handled it."""
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
        """Store the positions of consumers, and delete the changes that all of them have handled.

        The positions are written with the next commit. If a crash loses them, changes are only
        streamed again.
        """
        with self._positions_mutex:
            self._positions.update(positions)
            if self._positions_wait:
                return
            self._positions_wait = True
        self._file.defer(Transaction(upkeep=self._store_positions))

    def _store_positions(self, connection: sqlite3.Connection) -> None:
        with self._positions_mutex:
            rows = list(self._positions.items())
            self._positions_wait = False
        connection.executemany("INSERT OR REPLACE INTO consumers VALUES (?, ?)", rows)
        (least,) = connection.execute("SELECT min(sequence) FROM consumers").fetchone()
        connection.execute("DELETE FROM outbox WHERE sequence <= ?", (least,))
        self._file.recent.forget(least)

    def purge_expired(self, limit: int = 1000) -> int:
        """Delete items past their time to live, as DynamoDB does in the background."""
        now, purged = int(self._clock()), self._memory.purge_expired()
        for table in Table:
            if table is Table.POSTINGS:
                purged += self._purge_postings(now, limit)
            elif table not in VOLATILE:
                purged += self._purge(table, now, limit)
        return purged

    def _purge(self, table: Table, now: int, limit: int) -> int:
        found = self._file.reader.execute(
            f"SELECT pk, sk, expires FROM {table} WHERE expires <= ? LIMIT ?", (now, limit)
        ).fetchall()
        # One by one and with a condition, because an item's expiry may be moved meanwhile.
        transactions = [
            transaction_of(
                [Delete(table, unpack_partition(table, pk), sk, Equals(EXPIRES, expires))]
            )
            for pk, sk, expires in found
        ]
        if transactions:
            self._file.defer(*transactions)
            self._file.flush()
        return sum(transaction.error is None for transaction in transactions)

    def _purge_postings(self, now: int, limit: int) -> int:
        """By their keys in the file, because the names of lists are not stored."""
        expired = f"SELECT pk, sk FROM {Table.POSTINGS} WHERE expires <= ? LIMIT ?"
        if self._file.reader.execute(expired, (now, limit)).fetchone() is None:
            return 0
        purged = 0

        def purge(connection: sqlite3.Connection) -> None:
            nonlocal purged
            purged = connection.execute(
                f"DELETE FROM {Table.POSTINGS} WHERE (pk, sk) IN ({expired})", (now, limit)
            ).rowcount

        self._file.submit(Transaction(upkeep=purge))
        return purged
