"""The transactions of concurrent callers, applied one after another for one shared commit. The
conditions of each are evaluated on the state after the earlier ones."""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import NamedTuple

from farthing.store import sqlite_rows
from farthing.store.limits import check_size, last_of_each
from farthing.store.sqlite_items import encode_item
from farthing.store.sqlite_packing import (
    list_digest,
    pack_item,
    pack_key,
    pack_sort_key,
    unpack_item,
)
from farthing.store.sqlite_rows import PackedKey
from farthing.store.table import (
    EXPIRES,
    STREAMED,
    Absent,
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
_PLAIN = frozenset({str, int, bool, NoneType})  # types of values that decode to what they were

Place = tuple[Table, str, str]


@dataclass(slots=True)
class Stored:
    """An item in its stored form."""

    encoded: bytes
    pk: str  # the item's partition key: the stored form of an event leaves out its id
    expires: int | None = None
    # The decoded item, kept after the first use: each transaction of a group reads the same
    # balance.
    decoded: Item | None = None

    @property
    def item(self) -> Item:
        if self.decoded is None:
            self.decoded = unpack_item(self.pk, self.encoded)
        return self.decoded


class _Step(NamedTuple):
    """One write, prepared as far as possible in the caller's own thread."""

    write: TransactWrite
    place: Place
    key: PackedKey
    looks: bool  # whether the write depends on the stored item
    new: Stored | None  # the item after a put


@dataclass(slots=True)
class Transaction:
    """The writes of one caller, all or nothing, and their outcome."""

    steps: Sequence[_Step] = ()
    # Writes without conditions whose former items are not needed. Most writes are of this kind:
    # postings.
    blind: Mapping[Table, Mapping[PackedKey, Stored | None]] = field(default_factory=dict)
    lists: Sequence[str] = ()  # the lists of the postings among them
    upkeep: Callable[[sqlite3.Connection], None] | None = None
    finished: bool = False
    result: Stored | None = None
    error: Exception | None = None
    # A waiting thread acquires it. It is released when the transaction is finished, or when its
    # caller must lead.
    wake: "threading.Lock | None" = None

    @property
    def encoded_bytes(self) -> int:
        return sum(len(step.new.encoded) for step in self.steps if step.new is not None)


def transaction_of(writes: Iterable[TransactWrite], *, returns: bool = False) -> Transaction:
    """Checks here, where only the caller fails, everything that could break a group commit."""
    return Transaction([_step(write, returns) for write in writes])


def batch_transaction(writes: Sequence[BatchWrite]) -> Transaction:
    """A batch, in which the last write of an item wins."""
    blind: dict[Table, dict[PackedKey, Stored | None]] = {}
    # An event's postings have one item and one sort key.
    shared: Stored | None = None
    item: Item | None = None
    before, lists = "", list[str]()
    octets: bytes | None = None
    for write in writes:
        table, pk, sk = write[:3]
        if table in STREAMED and is_streamed(table, pk):
            return transaction_of(last_of_each(writes))
        stored = None
        if type(write) is Put:
            if shared is None or write.item is not item or table is not Table.POSTINGS:
                item = write.item
                shared = _stored(write, item)
            stored = shared
        changes = blind.get(table)
        if changes is None:
            changes = blind[table] = {}
        if table is not Table.POSTINGS:
            changes[pack_key(table, pk, sk)] = stored
            continue
        lists.append(pk)
        if sk is not before:
            before, octets = sk, pack_sort_key(sk)
        changes[(pk, sk) if octets is None else (list_digest(pk), octets)] = stored
    return Transaction(blind=blind, lists=lists)


def _step(write: TransactWrite, returns: bool) -> _Step:
    new = None
    if type(write) is Put:
        new = _stored(write, write.item)
    elif isinstance(write, Add):
        encode_item({**write.amounts, **write.assign})
    place = table, pk, sk = write[:3]
    return _Step(write, place, pack_key(table, pk, sk), returns or not _is_blind(write), new)


def _stored(write: TransactWrite, item: Item) -> Stored:
    table, pk, sk = write[:3]
    encoded = pack_item(table, pk, item)
    if len(encoded) > _SURELY_FITS:
        check_size(pk, sk, item)
    stored = Stored(encoded, pk, item.get(EXPIRES))
    # Kept, because numbering and streaming would otherwise decode the item again.
    if table in STREAMED and is_streamed(table, pk) and _PLAIN.issuperset(map(type, item.values())):
        stored.decoded = dict(item)
    return stored


class State:
    """The items of one group commit, each in its state after the transactions so far."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._read: dict[Table, dict[PackedKey, Stored | None]] = {table: {} for table in Table}
        self.after: dict[Table, dict[PackedKey, Stored | None]] = {table: {} for table in Table}
        self.changes: list[tuple[Place, Stored | None, Stored | None]] = []
        self.lists: set[str] = set()  # the names of the lists that get postings
        self.last_change = 0  # the number of the last change in the outbox; 0 if there is none

    def load(self, transactions: Sequence[Transaction]) -> None:
        """Read all items on which the transactions depend, at once."""
        wanted: dict[Table, dict[PackedKey, str]] = {}
        for transaction in transactions:
            for step in transaction.steps:
                if step.looks:
                    table, pk, _ = step.place
                    wanted.setdefault(table, {})[step.key] = pk
        for table, keys in wanted.items():
            found = sqlite_rows.standing(self._connection, table, list(keys))
            read = self._read[table]
            for key, encoded in found.items():
                read[key] = Stored(encoded, keys[key])

    def items(self, table: Table, keys: Sequence[Key]) -> dict[Key, Item]:
        """The items under these keys, after the changes so far."""
        packed = {pack_key(table, *key): key for key in keys}
        after = self.after[table]
        unchanged = [each for each in packed if each not in after]
        found = sqlite_rows.standing(self._connection, table, unchanged)
        items: dict[Key, Item] = {
            packed[each]: unpack_item(packed[each][0], found[each]) for each in found
        }
        if len(unchanged) < len(packed):
            for each, key in packed.items():
                stored = after.get(each)
                if stored is not None:
                    items[key] = stored.item
        return items

    def read(self, table: Table, key: PackedKey) -> Stored | None:
        after = self.after[table]
        return after[key] if key in after else self._read[table].get(key)

    def add(self, put: Put) -> None:
        """Write an item under a key that has none."""
        place = table, pk, sk = put[:3]
        stored = self.after[table][pack_key(table, pk, sk)] = _stored(put, put.item)
        if table in STREAMED and is_streamed(table, pk):
            self.changes.append((place, None, stored))

    def put_small(self, table: Table, puts: Iterable[Put]) -> None:
        """Write small items without reading the former ones. For changes that are not streamed."""
        after = self.after[table]
        for _, pk, sk, item, _ in puts:
            encoded = pack_item(table, pk, item)
            after[pack_key(table, pk, sk)] = Stored(encoded, pk, item.get(EXPIRES))

    def change(self, step: _Step, old: Stored | None, new: Stored | None) -> None:
        table, pk, _ = step.place
        self.after[table][step.key] = new
        if table is Table.POSTINGS:
            self.lists.add(pk)
        # As in DynamoDB, a write that changes nothing leaves no stream record.
        if table in STREAMED and is_streamed(table, pk) and not _is_same(old, new):
            self.changes.append((step.place, old, new))

    @property
    def rows(self) -> int:
        """The number of written rows, including the changes in the outbox."""
        return sum(map(len, self.after.values())) + len(self.changes)


def encoded_of(stored: Stored | None) -> bytes | None:
    return None if stored is None else stored.encoded


def _is_same(old: Stored | None, new: Stored | None) -> bool:
    if old is None or new is None:
        return old is new
    return old.encoded == new.encoded or same(old.item, new.item)


def apply(transaction: Transaction, state: State) -> None:
    """Evaluate the transaction's conditions, and make its changes if they all hold."""
    for table, blind in transaction.blind.items():
        state.after[table].update(blind)
    state.lists.update(transaction.lists)
    steps = transaction.steps
    if not steps:
        return
    before = [state.read(step.place[0], step.key) if step.looks else None for step in steps]
    try:
        _require(steps, before)
        after = [_after(step, old) for step, old in zip(steps, before, strict=True)]
    except (StoreError, ValueError) as error:
        transaction.error = error
        return
    for step, old, new in zip(steps, before, after, strict=True):
        kind = type(step.write)
        if kind is not Check:
            state.change(step, old, new)
            transaction.result = new if kind is Add else old


def _is_blind(write: TransactWrite) -> bool:
    """Whether the write does not depend on the stored item, as with all postings."""
    return (
        type(write) in (Put, Delete)
        and write.condition is None
        and not is_streamed(write.table, write.pk)
    )


def _require(steps: Sequence[_Step], before: Sequence[Stored | None]) -> None:
    broken: dict[int, Item | None] = {}
    for number, (step, old) in enumerate(zip(steps, before, strict=True)):
        condition = step.write.condition
        if condition is None or (old is None and type(condition) is Absent):
            continue
        item = None if old is None else old.item
        if not holds(condition, item):
            broken[number] = item
    if broken:
        numbers = range(len(steps))
        raise TransactionCancelled(
            [number in broken for number in numbers], [broken.get(number) for number in numbers]
        )


def _after(step: _Step, old: Stored | None) -> Stored | None:
    if type(step.write) is not Add:
        return step.new
    item = added({} if old is None else old.item, step.write)
    new = _stored(step.write, item)
    if not step.write.assign:  # numbers only: encoding does not change them
        new.decoded = item
    return new
