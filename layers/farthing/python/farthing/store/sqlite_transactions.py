"""The transactions of concurrent callers, applied one after another for one commit of all. The
conditions of each are evaluated on what the ones before have left."""

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

Place = tuple[Table, str, str]


@dataclass(slots=True)
class Stored:
    """An item as it stands in the file."""

    encoded: bytes
    expires: int | None = None
    # What it decodes to, once somebody has asked: a balance is asked for by each of a group.
    decoded: Item | None = None

    @property
    def item(self) -> Item:
        if self.decoded is None:
            self.decoded = decode_item(self.encoded)
        return self.decoded


class _Step(NamedTuple):
    """One write, prepared as far as possible in the caller's own thread."""

    write: TransactWrite
    place: Place
    looks: bool  # whether anything depends on what stands there
    new: Stored | None  # what a put leaves


@dataclass(slots=True)
class Transaction:
    """What one caller writes, all or nothing, and what became of it."""

    steps: Sequence[_Step] = ()
    # Writes without conditions, whose old items nobody asks for: postings, which are most of all.
    blind: Mapping[Place, Stored | None] = field(default_factory=dict)
    upkeep: Callable[[sqlite3.Connection], None] | None = None
    finished: bool = False
    result: bytes | None = None
    error: Exception | None = None
    # Held by a thread that waits; released when the transaction is finished or is to lead.
    wake: "threading.Lock | None" = None

    @property
    def encoded_bytes(self) -> int:
        return sum(len(step.new.encoded) for step in self.steps if step.new is not None)


def transaction_of(writes: Iterable[TransactWrite], *, returns: bool = False) -> Transaction:
    """Raises here, where only its caller is hurt, what would break a group commit."""
    encoded: dict[int, Stored] = {}  # by identity: an event's postings share one item
    return Transaction([_step(write, encoded, returns) for write in writes])


def batch_transaction(writes: Sequence[BatchWrite]) -> Transaction:
    """A batch, in which the last write of an item wins."""
    if any(is_streamed(write.table, write.pk) for write in writes):
        return transaction_of(last_of_each(writes))
    encoded: dict[int, Stored] = {}
    blind: dict[Place, Stored | None] = {}
    for write in writes:
        stored = _encoded(write, encoded) if type(write) is Put else None
        blind[write.table, write.pk, write.sk] = stored
    return Transaction(blind=blind)


def _step(write: TransactWrite, encoded: dict[int, Stored], returns: bool) -> _Step:
    if isinstance(write, Add):
        encode_item({**write.amounts, **write.assign})
    new = _encoded(write, encoded) if isinstance(write, Put) else None
    place = write.table, write.pk, write.sk
    return _Step(write, place, returns or not _is_blind(write), new)


def _encoded(write: Put, encoded: dict[int, Stored]) -> Stored:
    stored = encoded.get(id(write.item))
    if stored is None:
        stored = encoded[id(write.item)] = _stored(write, write.item)
    return stored


def _stored(write: TransactWrite, item: Item) -> Stored:
    encoded = encode_item(item)
    if len(encoded) > _SURELY_FITS:
        check_size(write.pk, write.sk, item)
    return Stored(encoded, item.get(EXPIRES))


class State:
    """The items that one group commit touches, each as the transactions before left it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._read: dict[Place, Stored | None] = {}
        self.after: dict[Place, Stored | None] = {}
        self.changes: list[tuple[Place, bytes | None, bytes | None]] = []

    def load(self, transactions: Sequence[Transaction]) -> None:
        """Read what the transactions depend on, all at once."""
        wanted: dict[Table, dict[Key, None]] = {}
        for transaction in transactions:
            for step in transaction.steps:
                if step.looks:
                    table, pk, sk = step.place
                    wanted.setdefault(table, {})[pk, sk] = None
        for table, keys in wanted.items():
            found = sqlite_rows.read(self._connection, table, list(keys))
            for key in keys:
                encoded = found.get(key)
                self._read[table, *key] = None if encoded is None else Stored(encoded)

    def items(self, table: Table, keys: Sequence[Key]) -> dict[Key, Item]:
        """What stands at the keys after the changes so far."""
        changed = {key: self.after[table, *key] for key in keys if (table, *key) in self.after}
        unchanged = [key for key in keys if key not in changed]
        found = sqlite_rows.read(self._connection, table, unchanged)
        standing = {key: decode_item(encoded) for key, encoded in found.items()}
        written = {key: stored.item for key, stored in changed.items() if stored is not None}
        return {**standing, **written}

    def read(self, place: Place) -> Stored | None:
        return self.after[place] if place in self.after else self._read[place]

    def change(self, place: Place, old: Stored | None, new: Stored | None) -> None:
        self.after[place] = new
        # As in DynamoDB, a write that changes nothing leaves no stream record.
        if is_streamed(*place[:2]) and not _is_same(old, new):
            self.changes.append((place, encoded_of(old), encoded_of(new)))


def encoded_of(stored: Stored | None) -> bytes | None:
    return None if stored is None else stored.encoded


def _is_same(old: Stored | None, new: Stored | None) -> bool:
    if old is None or new is None:
        return old is new
    return old.encoded == new.encoded or same(old.item, new.item)


def apply(transaction: Transaction, state: State) -> None:
    """Evaluate the transaction's conditions, and make its changes if they all hold."""
    state.after.update(transaction.blind)
    before = [state.read(step.place) if step.looks else None for step in transaction.steps]
    try:
        _require(transaction.steps, before)
        after = [_after(step, old) for step, old in zip(transaction.steps, before, strict=True)]
    except (StoreError, ValueError) as error:
        transaction.error = error
        return
    for step, old, new in zip(transaction.steps, before, after, strict=True):
        if isinstance(step.write, Check):
            continue
        state.change(step.place, old, new)
        transaction.result = encoded_of(new if isinstance(step.write, Add) else old)


def _is_blind(write: TransactWrite) -> bool:
    """Whether nothing depends on what stands there now, as with all postings."""
    return (
        type(write) in (Put, Delete)
        and write.condition is None
        and not is_streamed(write.table, write.pk)
    )


def _require(steps: Sequence[_Step], before: Sequence[Stored | None]) -> None:
    current: list[Item | None] = [None] * len(steps)
    failed = [False] * len(steps)
    for number, (step, old) in enumerate(zip(steps, before, strict=True)):
        if step.write.condition is not None:
            item = None if old is None else old.item
            if not holds(step.write.condition, item):
                failed[number], current[number] = True, item
    if any(failed):
        raise TransactionCancelled(failed, current)


def _after(step: _Step, old: Stored | None) -> Stored | None:
    if not isinstance(step.write, Add):
        return step.new
    item = added({} if old is None else old.item, step.write)
    new = _stored(step.write, item)
    if not step.write.assign:  # numbers only: they decode to what they were
        new.decoded = item
    return new
