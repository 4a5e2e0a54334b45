"""An engine around another one that counts what DynamoDB would bill, and round trips one after
another: requests, read and write units, and the waits.

For the size of items before and after a write, the engine reads them, and does not count these
reads. Parallel calls run one after another here, so measure one request at a time.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from farthing.store.attributes import item_size
from farthing.store.limits import last_of_each
from farthing.store.table import (
    CLOUD_SHARDS,
    MAX_BATCH_GET,
    MAX_BATCH_WRITE,
    MAX_TRANSACTION,
    Add,
    BatchWrite,
    Engine,
    Item,
    Key,
    Page,
    Put,
    Query,
    Table,
    TransactWrite,
    Write,
    added,
)

T = TypeVar("T")

READ_UNIT = 4096
WRITE_UNIT = 1024
TRANSACTION_FACTOR = 2

_Place = tuple[Table, str, str]


@dataclass(frozen=True, slots=True)
class Cost:
    requests: int = 0
    read_units: int = 0
    write_units: int = 0
    round_trips: int = 0


def units(size: int, unit: int) -> int:
    """Whole units, at least one."""
    return max(1, -(-size // unit))


def _place(write: TransactWrite) -> _Place:
    return write.table, write.pk, write.sk


class CountingEngine:
    """See `table.Engine`."""

    # DynamoDB's limits, because its costs are counted, whatever the inner engine is.
    max_transaction = MAX_TRANSACTION
    shards = CLOUD_SHARDS

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self._requests = 0
        self._read_units = 0
        self._write_units = 0
        self._round_trips = 0

    def snapshot(self) -> Cost:
        return Cost(self._requests, self._read_units, self._write_units, self._round_trips)

    def reset(self) -> Cost:
        """Set all counts to 0. Returns the counts so far."""
        cost = self.snapshot()
        self._requests = self._read_units = self._write_units = self._round_trips = 0
        return cost

    def _wait(self, requests: int) -> None:
        """Count requests that go out together: one round trip for all of them."""
        self._requests += requests
        self._round_trips += 1 if requests else 0

    def get(self, table: Table, pk: str, sk: str) -> Item | None:
        self._wait(1)
        item = self.inner.get(table, pk, sk)
        self._read_units += units(_size((table, pk, sk), item), READ_UNIT)
        return item

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]:
        wanted = list(dict.fromkeys(keys))
        self._wait(-(-len(wanted) // MAX_BATCH_GET))
        found = self.inner.get_many(table, wanted)
        self._read_units += sum(
            units(_size((table, *key), found.get(key)), READ_UNIT) for key in wanted
        )
        return found

    def query(self, query: Query) -> Page:
        self._wait(1)
        return self._count_page(query, self.inner.query(query))

    def query_many(self, queries: Sequence[Query]) -> list[Page]:
        self._wait(len(queries))
        pages = self.inner.query_many(queries)
        return [self._count_page(*pair) for pair in zip(queries, pages, strict=True)]

    def _count_page(self, query: Query, page: Page) -> Page:
        """Count a page. A query is rounded up once, not for each item."""
        size = sum(_size((query.table, query.pk, row.sk), row.item) for row in page.rows)
        self._read_units += units(size, READ_UNIT)
        return page

    def write(self, write: Write) -> Item | None:
        self._wait(1)
        self._count_writes([write], factor=1)
        return self.inner.write(write)

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        distinct = last_of_each(writes)
        self._wait(-(-len(distinct) // MAX_BATCH_WRITE))
        self._count_writes(distinct, factor=1)
        self.inner.write_batch(writes, deferred=deferred)

    def transact(self, writes: Sequence[TransactWrite]) -> None:
        self._wait(1 if writes else 0)
        self._count_writes(writes, factor=TRANSACTION_FACTOR)
        self.inner.transact(writes)

    def _count_writes(self, writes: Sequence[TransactWrite], factor: int) -> None:
        """Count the larger of the item before and after, whether or not the condition holds."""
        before = self._standing(writes)
        for write in writes:
            place = _place(write)
            old = before.get(place)
            size = max(_size(place, old), _size(place, _written(write, old)))
            self._write_units += factor * units(size, WRITE_UNIT)

    def _standing(self, writes: Sequence[TransactWrite]) -> dict[_Place, Item]:
        keys: dict[Table, list[Key]] = {}
        for write in writes:
            keys.setdefault(write.table, []).append((write.pk, write.sk))
        return {
            (table, *key): item
            for table, wanted in keys.items()
            for key, item in self.inner.get_many(table, wanted).items()
        }

    def together(self, *calls: Callable[[], T]) -> list[T]:
        """Run the calls, and count the round trips of the longest one."""
        start = longest = self._round_trips
        results = []
        for call in calls:
            self._round_trips = start
            try:
                results.append(call())
            finally:
                longest = self._round_trips = max(longest, self._round_trips)
        return results


def _written(write: TransactWrite, old: Item | None) -> Item | None:
    match write:
        case Put():
            return write.item
        case Add():
            return added(old or {}, write)
        case _:
            return None


def _size(place: _Place, item: Item | None) -> int:
    return 0 if item is None else item_size(place[1], place[2], item)
