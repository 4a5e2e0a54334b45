"""One SQLite file with many readers and one writer. Concurrent writers share commits: the first
leads: it commits all queued transactions, and then passes the lead to one that came meanwhile."""

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
from farthing.store.sqlite_others import OtherWriters
from farthing.store.sqlite_outbox import OutboxChange, RecentChanges
from farthing.store.sqlite_packing import pack_key
from farthing.store.sqlite_transactions import (
    State,
    Stored,
    Transaction,
    apply,
    encoded_of,
)
from farthing.store.table import Key, StoreError, Table

log = logging.getLogger("farthing")

_WRITER_CACHE_KIB = 36 * 1024
# The cache of each reading thread, of which there are some twenty. Four times as much would not
# read faster: the kernel keeps the pages as well.
_READER_CACHE_KIB = 4 * 1024


class Parking(Protocol):
    """A scheduler that runs many callers in one thread, and makes one commit for all of them."""

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

    def join(self, state: State) -> None:
        """Add writes to a commit with these changes: all of the companion's writes, or none."""
        ...

    def committed(self) -> None:
        """The writes of the last `join` are durable. Not called if `join` or the commit has
        failed."""
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
        self._writer = self._connect(_WRITER_CACHE_KIB, makes=True)
        self.on_commit: Callable[[], None] = lambda: None
        # Called with the changes of a commit, before its callers continue.
        self.on_change: Callable[[State], None] = lambda _: None
        self.parking: Parking | None = None
        self.companion: Companion | None = None
        self.recent = RecentChanges()
        self._checkpoints = Checkpoints(path)
        sqlite_layout.prepare(self._writer, tables)
        self.others = OtherWriters(path.with_name(path.name + "-shm"), self._writer)
        # Postings that are not packed have keys of another type, and are read separately.
        self.has_plain_postings = sqlite_rows.has_plain(self._writer, Table.POSTINGS)

    def _connect(self, cache_kib: int, *, makes: bool = False) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA busy_timeout = 10000")
        if makes:
            # Has an effect only before the first page of a new file, which setting the journal mode
            # writes. On any other file this statement is a commit.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            # The pages of a statement as they were, in case it fails. They need not be on the disk.
            connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA journal_mode = WAL")
        # FULL: a commit returns when the log is on the disk, not only in the kernel's memory.
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
        """An encoded item. Callers that a scheduler runs read together, because every statement
        releases the interpreter lock and must wait to get it back."""
        if self.parking is None or not self.parking.is_inside():
            found = self.reader.execute(
                f"SELECT item FROM {table} WHERE pk = ? AND sk = ?", pack_key(table, *key)
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
        self.others.close()

    def defer(self, *transactions: Transaction) -> None:
        """Queue the transactions for the next commit."""
        with self._mutex:
            self._pending.extend(transactions)

    def flush(self) -> None:
        self.submit(Transaction())

    def submit(self, transaction: Transaction) -> Stored | None:
        """Commit the transaction, together with all that wait. Returns when it is durable."""
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
        """Commit a queued transaction and all before it. Later transactions wait for the next
        commit, and their callers continue meanwhile."""
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
            wake.acquire()  # until the leader has committed our transaction or passes us the lead
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
            # All of them: a condition may have failed because of a write that is rolled back now.
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
        """Returns whether there are changes to stream."""
        self._writer.execute("BEGIN IMMEDIATE")
        self.others.begin()
        try:
            state = State(self._writer)
            state.load(group)
            for transaction in group:
                apply(transaction, state)
            joined = _accompany(state, self.companion)
            self._save(state)
            for transaction in group:
                if transaction.upkeep is not None:
                    transaction.upkeep(self._writer)
            self._writer.execute("COMMIT")
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            self.others.end()
        self.on_change(state)
        if joined is not None:
            joined.committed()
        if state.changes:
            self.recent.add(_outbox_changes(state))
        self._checkpoints.after_commit(self._writer, state.rows)
        return bool(state.changes)

    def _save(self, state: State) -> None:
        for table, after in state.after.items():
            puts = [
                (pk, sk, stored.encoded, stored.expires)
                for (pk, sk), stored in after.items()
                if stored is not None
            ]
            if puts:
                sqlite_rows.put(self._writer, table, puts)
                if table is Table.POSTINGS and type(puts[0][0]) is str:
                    self.has_plain_postings = True
            if len(puts) < len(after):
                gone = [key for key, stored in after.items() if stored is None]
                sqlite_rows.delete(self._writer, table, gone)
        # By its value: anything but a plain string is adapted, slowly.
        changes = [
            (table.value, pk, sk, encoded_of(old), encoded_of(new))
            for (table, pk, sk), old, new in state.changes
        ]
        state.last_change = sqlite_rows.stream(self._writer, changes)


def _outbox_changes(state: State) -> list[tuple[OutboxChange, int]]:
    first = state.last_change - len(state.changes) + 1
    return [
        (
            OutboxChange(
                number,
                *place,
                None if old is None else old.item,
                None if new is None else new.item,
            ),
            len(old.encoded if old is not None else b"") + len(new.encoded if new else b""),
        )
        for number, (place, old, new) in enumerate(state.changes, first)
    ]


def _accompany(state: State, companion: Companion | None) -> Companion | None:
    """The companion that has joined, if any."""
    if companion is None:
        return None
    try:
        companion.join(state)
    except Exception:  # the callers that wait for the commit must not fail
        log.exception("a commit continues without the writes of its companion")
        return None
    return companion
