"""One SQLite file with many readers and one writer, who commits for all who wait: whoever comes
first leads, takes along all that has queued up, and hands the lead on."""

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
from farthing.store.sqlite_units import State, Unit, apply, unit_of
from farthing.store.table import Key, StoreError, Table, TransactWrite

log = logging.getLogger("farthing")

_WRITER_CACHE_KIB = 64 * 1024
# Every thread that reads has one. A million events are read no faster with four times as much.
_READER_CACHE_KIB = 16 * 1024


class Parking(Protocol):
    """Someone who runs many callers in one thread, and commits for all of them."""

    def is_inside(self) -> bool: ...

    def park(self, commit: Callable[[], None]) -> None:
        """Return after `commit` has been called, by whatever thread: its own, or that of somebody
        who was parked later."""
        ...

    def gather(self, read: Callable[[], None]) -> None:
        """Return after `read` has been called, once for all who have gathered by then."""
        ...


class Companion(Protocol):
    """Someone who adds to each commit."""

    def writes(self, state: State) -> list[list[TransactWrite]]:
        """What to write in the same commit, given its changes: transactions one after another."""
        ...


@dataclass(slots=True)
class _Look:
    """An item that somebody waits to see."""

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
        self._pending: list[Unit] = []
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
        """An item as it is encoded. Whoever is parked reads together with the others there: one
        statement lets go of the interpreter once, and each has to win it back."""
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

    def defer(self, *units: Unit) -> None:
        """Queue the units for whoever commits next."""
        with self._mutex:
            self._pending.extend(units)

    def flush(self) -> None:
        self.submit(Unit())

    def submit(self, unit: Unit) -> bytes | None:
        """Write the unit, together with whatever else is waiting, and return when it is durable."""
        if self.parking is not None and self.parking.is_inside():
            self.defer(unit)
            self.parking.park(partial(self._commit_to, unit))
        else:
            self._submit_from_thread(unit)
        if unit.error is not None:
            raise unit.error
        return unit.result

    def _submit_from_thread(self, unit: Unit) -> None:
        self.defer(unit)
        if self._wait_for_lead(unit):
            self._lead()

    def _commit_to(self, unit: Unit) -> None:
        """Commit a queued unit and all before it. What is behind it has its turn later: who wrote
        that can use the time, and finds as much done."""
        if self._wait_for_lead(unit):
            self._lead(unit)

    def _wait_for_lead(self, unit: Unit) -> bool:
        """Whether the caller is to lead; otherwise the unit is finished."""
        with self._mutex:
            if unit.finished:
                return False
            leads = not self._leading
            if leads:
                self._leading = True
            else:
                wake = unit.wake = threading.Lock()
                wake.acquire()
        if not leads:
            wake.acquire()  # until the leader is through with us or hands us the lead
        return not unit.finished

    def _take(self, last: Unit | None) -> list[Unit]:
        with self._mutex:
            end = len(self._pending)
            if last is not None:
                # By identity: units that write the same are equal.
                end = next((at for at, unit in enumerate(self._pending, 1) if unit is last), 0)
            group, self._pending = self._pending[:end], self._pending[end:]
        return group

    def _lead(self, last: Unit | None = None) -> None:
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

    def _hand_over(self, group: Sequence[Unit]) -> None:
        with self._mutex:
            heir = next((unit.wake for unit in self._pending if unit.wake is not None), None)
            self._leading = heir is not None
            for member in group:
                member.finished = True
                if member.wake is not None and member.wake.locked():
                    member.wake.release()
        if heir is not None:
            heir.release()

    def _commit(self, group: Sequence[Unit]) -> bool:
        """Returns whether there is something to stream."""
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            state = State(self._writer)
            state.load(group)
            for unit in group:
                apply(unit, state)
            if self.companion is not None:
                _accompany(state, self.companion)
            _save(self._writer, state)
            for unit in group:
                if unit.upkeep is not None:
                    unit.upkeep(self._writer)
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
            unit = unit_of(writes)
            state.load([unit])
            apply(unit, state)
            if unit.error is not None:
                raise unit.error
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
