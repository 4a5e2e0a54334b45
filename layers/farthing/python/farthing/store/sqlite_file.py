"""One SQLite file with many readers and one writer. Concurrent writers share commits: the first
one leads, commits everything that has queued up, and hands the lead to one that came meanwhile."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from farthing.store import sqlite_layout, sqlite_rows
from farthing.store.private_files import close_file, private_file
from farthing.store.sqlite_checkpoint import Checkpoints
from farthing.store.sqlite_transactions import State, Transaction, apply, transaction_of
from farthing.store.table import Key, StoreError, Table, TransactWrite

log = logging.getLogger("farthing")

_WRITER_CACHE_KIB = 64 * 1024
# Every thread that reads has one. A million events are read no faster with four times as much.
_READER_CACHE_KIB = 16 * 1024


class Parking(Protocol):
    """A scheduler that runs many callers in one thread, and commits for all of them."""

    def is_inside(self) -> bool: ...

    def park(self, commit: Callable[[], None]) -> None:
        """Return after `commit` has been called, or the `commit` of a caller that was parked
        later. The thread does not matter."""
        ...

    def gather(self, read: Callable[[], None]) -> None:
        """Return after `read` has been called, once for all callers that have gathered by then."""
        ...


class Companion(Protocol):
    """Adds writes to each commit."""

    def writes(self, state: State) -> list[list[TransactWrite]]:
        """What to write in the same commit, given its changes: transactions one after another."""
        ...


@dataclass(slots=True)
class _Look:
    """A read that waits to be made together with others."""

    table: Table
    key: Key
    found: bytes | None = None
    error: Exception | None = None


class File:
    def __init__(self, path: Path, tables: Iterable[Table]) -> None:
        self._path = path
        private_file(path)
        for suffix in ("-wal", "-shm"):  # SQLite makes new ones with the rights of the database
            close_file(path.with_name(path.name + suffix))
        self._readers = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._mutex = threading.Lock()
        self._pending: list[Transaction] = []
        self._looks: list[_Look] = []
        self._leading = False
        self._writer = self._connect(_WRITER_CACHE_KIB)
        self.on_commit: Callable[[], None] = lambda: None
        self.parking: Parking | None = None
        self.companion: Companion | None = None
        self._checkpoints = Checkpoints(path)
        sqlite_layout.prepare(self._writer, tables)

    def _connect(self, cache_kib: int) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA busy_timeout = 10000")
        # Counts only before a new file's first page is written, which the log mode does.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        # FULL: a commit returns after the log is on the disk, not merely handed to the kernel.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # see `sqlite_checkpoint`
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        with self._mutex:
            self._opened.append(connection)
        return connection

    @property
    def reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if connection is None:
            connection = self._readers.connection = self._connect(_READER_CACHE_KIB)
        return connection

    def read(self, table: Table, key: Key) -> bytes | None:
        """An item as it is encoded. Callers that a scheduler runs read together: every statement
        lets go of the interpreter, and has to win it back."""
        if self.parking is None or not self.parking.is_inside():
            found = self.reader.execute(
                f"SELECT item FROM {table} WHERE pk = ? AND sk = ?", key
            ).fetchone()
            return found[0] if found else None
        look = _Look(table, key)
        self._looks.append(look)
        self.parking.gather(self._look_up)
        if look.error is not None:
            raise look.error
        return look.found

    def _look_up(self) -> None:
        looks, self._looks = self._looks, []
        wanted: dict[Table, dict[Key, None]] = {}
        for look in looks:
            wanted.setdefault(look.table, {})[look.key] = None
        try:
            found = {
                table: sqlite_rows.read(self.reader, table, list(keys))
                for table, keys in wanted.items()
            }
        except Exception as error:
            for look in looks:
                look.error = error
            return
        for look in looks:
            look.found = found[look.table].get(look.key)

    def close(self, *, flush: bool = True) -> None:
        if flush:
            self.flush()
        self._checkpoints.close()
        with self._mutex:
            opened, self._opened = self._opened, []
        for connection in opened:
            connection.close()

    def defer(self, *transactions: Transaction) -> None:
        """Queue the transactions for the next commit."""
        with self._mutex:
            self._pending.extend(transactions)

    def flush(self) -> None:
        self.submit(Transaction())

    def submit(self, transaction: Transaction) -> bytes | None:
        """Write the transaction and everything that waits. Returns when that is durable."""
        if self.parking is not None and self.parking.is_inside():
            self.defer(transaction)
            self.parking.park(partial(self._commit_to, transaction))
        else:
            self._submit_from_thread(transaction)
        if transaction.error is not None:
            raise transaction.error
        return transaction.result

    def _submit_from_thread(self, transaction: Transaction) -> None:
        self.defer(transaction)
        if self._wait_for_lead(transaction):
            self._lead()

    def _commit_to(self, transaction: Transaction) -> None:
        """Commit a queued transaction and all before it. Those behind it wait for the next commit,
        and their callers go on meanwhile."""
        if self._wait_for_lead(transaction):
            self._lead(transaction)

    def _wait_for_lead(self, transaction: Transaction) -> bool:
        """Whether the caller is to lead; otherwise the transaction is finished."""
        with self._mutex:
            if transaction.finished:
                return False
            leads = not self._leading
            if leads:
                self._leading = True
            else:
                wake = transaction.wake = threading.Lock()
                wake.acquire()
        if not leads:
            wake.acquire()  # until the leader is through with us or hands us the lead
        return not transaction.finished

    def _take(self, last: Transaction | None) -> list[Transaction]:
        with self._mutex:
            end = len(self._pending)
            if last is not None:
                # By identity: transactions that write the same are equal.
                end = next(
                    (at for at, transaction in enumerate(self._pending, 1) if transaction is last),
                    0,
                )
            group, self._pending = self._pending[:end], self._pending[end:]
        return group

    def _lead(self, last: Transaction | None = None) -> None:
        group = self._take(last)
        streams = False
        try:
            streams = self._commit(group)
        except BaseException as error:
            # All of them: a condition may have failed on what is now rolled back.
            for member in group:
                member.error = StoreError(f"commit failed: {error}")
            if not isinstance(error, Exception):
                raise
        finally:
            self._hand_over(group)
        if streams:
            self.on_commit()

    def _hand_over(self, group: Sequence[Transaction]) -> None:
        with self._mutex:
            heir = next(
                (transaction.wake for transaction in self._pending if transaction.wake is not None),
                None,
            )
            self._leading = heir is not None
            for member in group:
                member.finished = True
                if member.wake is not None and member.wake.locked():
                    member.wake.release()
        if heir is not None:
            heir.release()

    def _commit(self, group: Sequence[Transaction]) -> bool:
        """Returns whether there is something to stream."""
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            state = State(self._writer)
            state.load(group)
            for transaction in group:
                apply(transaction, state)
            if self.companion is not None:
                _accompany(state, self.companion)
            _save(self._writer, state)
            for transaction in group:
                if transaction.upkeep is not None:
                    transaction.upkeep(self._writer)
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        self._checkpoints.after_commit(self._writer, len(state.after) + len(state.changes))
        return bool(state.changes)


def _accompany(state: State, companion: Companion) -> None:
    try:
        for writes in companion.writes(state):
            transaction = transaction_of(writes)
            state.load([transaction])
            apply(transaction, state)
            if transaction.error is not None:
                raise transaction.error
    except Exception:  # those who wait for the commit are not to blame
        log.exception("a commit goes on without what was to accompany it")


def _save(connection: sqlite3.Connection, state: State) -> None:
    puts: dict[Table, list[sqlite_rows.Stored]] = {}
    deletes: dict[Table, list[Key]] = {}
    for (table, pk, sk), stored in state.after.items():
        if stored is None:
            deletes.setdefault(table, []).append((pk, sk))
        else:
            puts.setdefault(table, []).append((pk, sk, stored.encoded, stored.expires))
    for table, rows in puts.items():
        sqlite_rows.put(connection, table, rows)
    for table, keys in deletes.items():
        sqlite_rows.delete(connection, table, keys)
    # By its value: anything but a plain string is adapted, slowly.
    changes = [(table.value, pk, sk, old, new) for (table, pk, sk), old, new in state.changes]
    sqlite_rows.stream(connection, changes)
