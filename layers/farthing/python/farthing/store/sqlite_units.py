"""What callers write at once, all or nothing, and what comes of it: conditions are evaluated in
order, each on what the units before have left, and the changes are kept for one commit of all."""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
    added,
    holds,
    is_streamed,
    same,
)

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


class State:
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


def apply(unit: Unit, state: State) -> None:
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


def _needed(step: _Step, returns: bool, state: State) -> bytes | None:
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
        return _stored(step.write, added({} if old is None else decode_item(old), step.write))
    return step.new
