"""The table port, through which all data is stored.

It is shaped like DynamoDB, and has only the parts that we use: items under (partition key, sort
key), conditions from a closed set, transactions, counters, and a time to live. Engines implement
it; the code above the port is the same for all of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

Value = Any  # None, bool, int, str, bytes, and lists and string-keyed dicts of these
Item = Mapping[str, Value]
Key = tuple[str, str]

# The only attribute that engines interpret: from this epoch second on, the item does not exist.
EXPIRES = "expires"

MAX_TRANSACTION = 100
# The number of partitions of a list of all events: one partition of DynamoDB accepts 1000 writes a
# second.
CLOUD_SHARDS = 8
MAX_BATCH_WRITE = 25
MAX_BATCH_GET = 100


class Table(StrEnum):
    EVENTS = "events"
    POSTINGS = "postings"
    CHANGES = "changes"
    SESSIONS = "sessions"
    LEDGER = "ledger"
    ROUTES = "routes"


# Tables whose changes come out as stream records, and how the keys of those partitions begin: the
# filters of the event source mappings are made from this. `xlog#` is the second event format's log.
STREAMED: Mapping[Table, tuple[str, ...]] = {
    Table.EVENTS: ("",),
    Table.CHANGES: ("log#", "xlog#"),
}

# Tables that need not survive the process on one machine. No transaction combines them with other
# tables.
VOLATILE = frozenset({Table.SESSIONS})


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no item under the key."""


@dataclass(frozen=True, slots=True)
class Equals:
    """The item's attribute exists and has this value."""

    attribute: str
    value: Value


@dataclass(frozen=True, slots=True)
class LessThan:
    """The item's number is below this one. A missing item or attribute counts as 0."""

    attribute: str
    value: int


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The item's number exists and is this one or more. So no more is taken than is left."""

    attribute: str
    value: int


Condition = Absent | Equals | LessThan | AtLeast


class Put(NamedTuple):
    table: Table
    pk: str
    sk: str
    item: Item
    condition: Condition | None = None


class Delete(NamedTuple):
    table: Table
    pk: str
    sk: str
    condition: Condition | None = None


class Add(NamedTuple):
    """Add to the item's numbers and set other attributes. A missing item is made."""

    table: Table
    pk: str
    sk: str
    amounts: Mapping[str, int]
    assign: Item = MappingProxyType({})
    condition: Condition | None = None


class Check(NamedTuple):
    """A condition that a transaction depends on, without a change."""

    table: Table
    pk: str
    sk: str
    condition: Condition


Write = Put | Delete | Add
BatchWrite = Put | Delete
TransactWrite = Put | Delete | Add | Check


class Query(NamedTuple):
    """A partition's items in sort-key order, between two sort keys, both inclusive."""

    table: Table
    pk: str
    low: str | None = None
    high: str | None = None
    backward: bool = False
    limit: int | None = None
    after: str | None = None  # continue behind this sort key, in the direction of reading


class Row(NamedTuple):
    sk: str
    item: Item


class Page(NamedTuple):
    """`after` is the value for the next query, or None at the end of the range.

    A page may hold fewer rows than asked for, even none, with more to come: expired items are left
    out, and a cloud page ends at a megabyte.
    """

    rows: Sequence[Row]
    after: str | None


class StoreError(Exception):
    """The store could not carry out a call."""


class ConditionFailed(StoreError):
    def __init__(self, current: Item | None) -> None:
        super().__init__("the condition does not hold")
        self.current = current


class TransactionCancelled(StoreError):
    """Nothing was written. For each operation, `failed` says whether its condition failed, and
    `current` has the stored item."""

    def __init__(self, failed: Sequence[bool], current: Sequence[Item | None]) -> None:
        super().__init__("the transaction was cancelled")
        self.failed = failed
        self.current = current


class Contended(StoreError):
    """Other processes are writing the same items. Nothing was written, and the call may be tried
    again."""


class Throttled(StoreError):
    """The store was over its capacity during all retries."""


class OutcomeUnknown(StoreError):
    """The answer was lost, and a repeat could write twice. The write was made once or not at
    all."""


class Engine(Protocol):
    """An implementation of the port. Reads see every write that was acknowledged before them."""

    @property
    def max_transaction(self) -> int:
        """The largest number of operations in a transaction: MAX_TRANSACTION or more."""
        ...

    @property
    def shards(self) -> int:
        """The number of partitions of a list that every event enters."""
        ...

    def get(self, table: Table, pk: str, sk: str) -> Item | None: ...

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]: ...

    def query(self, query: Query) -> Page: ...

    def query_many(self, queries: Sequence[Query]) -> list[Page]:
        """Independent queries, in parallel."""
        ...

    def write(self, write: Write) -> Item | None:
        """Put and Delete return the former item, Add returns the new one."""
        ...

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        """Writes without conditions, in no order, each on its own.

        With `deferred`, the caller waits for its next write, which makes these writes durable as
        well. So an engine with one ordered log need not wait here.
        """
        ...

    def transact(self, writes: Sequence[TransactWrite]) -> None:
        """All or nothing. At most `max_transaction` operations, each on another item."""
        ...

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        """Independent calls, in parallel if that helps the engine. Results are in the order of the
        calls."""
        ...


def holds(condition: Condition | None, item: Item | None) -> bool:
    """Whether an item meets a condition, for engines that evaluate conditions themselves."""
    match condition:
        case None:
            return True
        case Absent():
            return item is None
        case Equals(attribute, value):
            return item is not None and attribute in item and same(item[attribute], value)
        case LessThan(attribute, bound):
            if item is None or attribute not in item:
                return bound > 0
            number = item[attribute]
            return type(number) is int and number < bound
        case AtLeast(attribute, bound):
            number = None if item is None else item.get(attribute)
            return type(number) is int and number >= bound


def added(item: Item, write: Add) -> Item:
    """The item after an Add; `item` is `{}` if there was none."""
    for name in write.amounts:
        if type(item.get(name, 0)) is not int:
            raise StoreError(f"expected a number to add to in {name!r}, got another type")
    sums = {name: item.get(name, 0) + amount for name, amount in write.amounts.items()}
    return {**item, **write.assign, **sums}


def same(one: Value, other: Value) -> bool:
    """Equal, and of one type: to Python True is 1, to DynamoDB it is not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def is_streamed(table: Table, pk: str) -> bool:
    prefixes = STREAMED.get(table)
    return prefixes is not None and pk.startswith(prefixes)


def is_expired(item: Item, now: int) -> bool:
    expires = item.get(EXPIRES)
    return expires is not None and expires <= now


def read_all(engine: Engine, query: Query) -> Iterable[Row]:
    """Every row of a range, page after page."""
    for page in read_pages(engine, query):
        yield from page.rows


def read_pages(engine: Engine, query: Query) -> Iterable[Page]:
    """All pages of a range, for readers of many rows at a time."""
    while True:
        page = engine.query(query)
        yield page
        if page.after is None:
            return
        query = query._replace(after=page.after)
