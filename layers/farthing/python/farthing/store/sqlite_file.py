"""One SQLite file with many readers and one writer, who commits for all who wait: whoever comes
first leads, takes along all that has queued up, and hands the lead on."""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from farthing.store import sqlite_rows
from farthing.store.limits import check_size, last_of_each
from farthing.store.sqlite_items import decode_item, encode_item
from farthing.store.table import (
    EXPIRES,
    Add,
    BatchWrite,
    Check,
    Delete,
    Item,
    Key,
    Put,
    StoreError,
    Table,
    TransactionCancelled,
    TransactWrite,
    holds,
    is_streamed,
    same,
)

_WRITER_CACHE_KIB = 64 * 1024
# Every thread that reads has one. A million events are read no faster with four times as much.
_READER_CACHE_KIB = 16 * 1024
_CHECKPOINT_PAGES = 16000  # pages that change often reach the database file less often
_SURELY_FITS = 200_000  # encoded bytes below which no item is over DynamoDB's limit

_Place = tuple[Table, str, str]


class _Stored(NamedTuple):
    encoded: bytes
    expires: int | None = None


class _Step(NamedTuple):
    write: TransactWrite
    new: _Stored | None  # what a put leaves, encoded in the thread of whoever asks for it

    @property
    def place(self) -> _Place:
        return self.write.table, self.write.pk, self.write.sk


@dataclass(slots=True)
class Unit:
    """What one caller writes, all or nothing, and what became of it."""

    steps: Sequence[_Step] = ()
    returns: bool = False
    # Writes that depend on nothing and tell nobody, as postings do: most of all that is written.
    blind: Mapping[_Place, _Stored | None] = field(default_factory=dict)
    upkeep: Callable[[sqlite3.Connection], None] | None = None
    finished: bool = False
    result: bytes | None = None
    error: Exception | None = None
    # Held by a thread that waits; released when the unit is finished or is to lead.
    wake: "threading.Lock | None" = None

    @property
    def encoded_bytes(self) -> int:
        return sum(len(step.new.encoded) for step in self.steps if step.new is not None)


def unit_of(writes: Iterable[TransactWrite], *, returns: bool = False) -> Unit:
    """Raises here, where only its caller is hurt, what would break a group commit."""
    encoded: dict[int, _Stored] = {}  # by identity: an event's postings share one item
    return Unit([_step(write, encoded) for write in writes], returns)


def batch_unit(writes: Sequence[BatchWrite]) -> Unit:
    """A batch, in which the last write of an item wins."""
    if any(is_streamed(write.table, write.pk) for write in writes):
        return unit_of(last_of_each(writes))
    encoded: dict[int, _Stored] = {}
    blind: dict[_Place, _Stored | None] = {}
    for write in writes:
        stored = _encoded(write, encoded) if type(write) is Put else None
        blind[write.table, write.pk, write.sk] = stored
    return Unit(blind=blind)


def _step(write: TransactWrite, encoded: dict[int, _Stored]) -> _Step:
    if isinstance(write, Add):
        encode_item({**write.amounts, **write.assign})
    return _Step(write, _encoded(write, encoded) if isinstance(write, Put) else None)


def _encoded(write: Put, encoded: dict[int, _Stored]) -> _Stored:
    stored = encoded.get(id(write.item))
    if stored is None:
        stored = encoded[id(write.item)] = _stored(write, write.item)
    return stored


def _stored(write: TransactWrite, item: Item) -> _Stored:
    encoded = encode_item(item)
    if len(encoded) > _SURELY_FITS:
        check_size(write.pk, write.sk, item)
    return _Stored(encoded, item.get(EXPIRES))


class _State:
    """The items that one group commit touches, each as the units before left it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._read: dict[_Place, bytes | None] = {}
        self.after: dict[_Place, _Stored | None] = {}
        self.changes: list[tuple[_Place, bytes | None, bytes | None]] = []

    def load(self, units: Sequence[Unit]) -> None:
        """Read what the units depend on, all at once."""
        wanted: dict[Table, dict[Key, None]] = {}
        for unit in units:
            for step in unit.steps:
                if unit.returns or not _is_blind(step.write):
                    table, pk, sk = step.place
                    wanted.setdefault(table, {})[pk, sk] = None
        for table, keys in wanted.items():
            found = sqlite_rows.read(self._connection, table, list(keys))
            self._read.update(((table, *key), found.get(key)) for key in keys)

    def read(self, place: _Place) -> bytes | None:
        if place in self.after:
            stored = self.after[place]
            return None if stored is None else stored.encoded
        return self._read[place]

    def change(self, place: _Place, old: bytes | None, new: _Stored | None) -> None:
        self.after[place] = new
        encoded = None if new is None else new.encoded
        # As in DynamoDB, a write that changes nothing leaves no stream record.
        if is_streamed(*place[:2]) and not _is_same(old, encoded):
            self.changes.append((place, old, encoded))


def _is_same(old: bytes | None, new: bytes | None) -> bool:
    if old is None or new is None or old == new:
        return old == new
    return same(decode_item(old), decode_item(new))


class Parking(Protocol):
    """Someone who runs many callers in one thread, and commits for all of them."""

    def is_inside(self) -> bool: ...

    def park(self, commit: Callable[[], None]) -> None:
        """Return after `commit` has been called, by whatever thread: its own, or that of somebody
        who was parked later."""
        ...


class File:
    def __init__(self, path: Path, tables: Iterable[Table]) -> None:
        self._path = path
        self._readers = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._mutex = threading.Lock()
        self._pending: list[Unit] = []
        self._leading = False
        self._writer = self._connect(_WRITER_CACHE_KIB)
        self.on_commit: Callable[[], None] = lambda: None
        self.parking: Parking | None = None
        _create(self._writer, tables)

    def _connect(self, cache_kib: int) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA busy_timeout = 10000")
        # Counts only before a new file's first page is written, which the log mode does.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        # FULL: a commit returns after the log is on the disk, not merely handed to the kernel.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
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

    def close(self, *, flush: bool = True) -> None:
        if flush:
            self.flush()
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
                end = next(at for at, unit in enumerate(self._pending, 1) if unit is last)
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
            state = _State(self._writer)
            state.load(group)
            for unit in group:
                _apply(unit, state)
            _save(self._writer, state)
            for unit in group:
                if unit.upkeep is not None:
                    unit.upkeep(self._writer)
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        return bool(state.changes)


def _create(connection: sqlite3.Connection, tables: Iterable[Table]) -> None:
    for table in tables:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (pk TEXT NOT NULL, sk TEXT NOT NULL,"
            " item BLOB NOT NULL, expires INTEGER, PRIMARY KEY (pk, sk)) WITHOUT ROWID"
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


def _save(connection: sqlite3.Connection, state: _State) -> None:
    puts: dict[Table, list[sqlite_rows.Stored]] = {}
    deletes: dict[Table, list[Key]] = {}
    for (table, pk, sk), stored in state.after.items():
        if stored is None:
            deletes.setdefault(table, []).append((pk, sk))
        else:
            puts.setdefault(table, []).append((pk, sk, *stored))
    for table, rows in puts.items():
        sqlite_rows.put(connection, table, rows)
    for table, keys in deletes.items():
        sqlite_rows.delete(connection, table, keys)
    # By its value: anything but a plain string is adapted, slowly.
    changes = [(table.value, pk, sk, old, new) for (table, pk, sk), old, new in state.changes]
    sqlite_rows.stream(connection, changes)


def _apply(unit: Unit, state: _State) -> None:
    """Evaluate the unit's conditions, and make its changes if they all hold."""
    state.after.update(unit.blind)
    before = [_needed(step, unit.returns, state) for step in unit.steps]
    try:
        _require(unit.steps, before)
        after = [_after(step, old) for step, old in zip(unit.steps, before, strict=True)]
    except (StoreError, ValueError) as error:
        unit.error = error
        return
    for step, old, new in zip(unit.steps, before, after, strict=True):
        if isinstance(step.write, Check):
            continue
        state.change(step.place, old, new)
        unit.result = new.encoded if new and isinstance(step.write, Add) else old


def _needed(step: _Step, returns: bool, state: _State) -> bytes | None:
    """The item that stands there, where anything depends on it."""
    if _is_blind(step.write) and not returns:
        return None
    return state.read(step.place)


def _is_blind(write: TransactWrite) -> bool:
    """Whether nothing depends on what stands there now, as with all postings."""
    return (
        type(write) in (Put, Delete)
        and write.condition is None
        and not is_streamed(write.table, write.pk)
    )


def _require(steps: Sequence[_Step], before: Sequence[bytes | None]) -> None:
    current: list[Item | None] = [None] * len(steps)
    failed = [False] * len(steps)
    for number, (step, old) in enumerate(zip(steps, before, strict=True)):
        if step.write.condition is not None:
            item = None if old is None else decode_item(old)
            if not holds(step.write.condition, item):
                failed[number], current[number] = True, item
    if any(failed):
        raise TransactionCancelled(failed, current)


def _after(step: _Step, old: bytes | None) -> _Stored | None:
    if isinstance(step.write, Add):
        return _stored(step.write, _added({} if old is None else decode_item(old), step.write))
    return step.new


def _added(item: Item, write: Add) -> Item:
    for name in write.amounts:
        if type(item.get(name, 0)) is not int:
            raise StoreError(f"cannot add to {name!r}: not a number")
    sums = {name: item.get(name, 0) + amount for name, amount in write.amounts.items()}
    return {**item, **write.assign, **sums}
