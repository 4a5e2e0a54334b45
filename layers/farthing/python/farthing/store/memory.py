"""The table port in memory, for data that ends with the process: connections and their
subscriptions on one machine. The data is neither durable nor streamed."""

import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from farthing.store.limits import (
    check_batch,
    check_key,
    check_query,
    check_transaction,
    check_transaction_size,
    check_write,
    last_of_each,
)
from farthing.store.table import (
    MAX_TRANSACTION,
    Add,
    BatchWrite,
    ConditionFailed,
    Delete,
    Item,
    Key,
    Page,
    Put,
    Query,
    Row,
    Table,
    TransactionCancelled,
    TransactWrite,
    Write,
    added,
    holds,
    is_expired,
)

_NOTHING = Page((), None)


class _Partition:
    """Items by sort key, and the sort keys in order."""

    __slots__ = ("items", "order")

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.order: list[str] = []

    def put(self, sk: str, item: Item) -> None:
        if sk not in self.items:
            insort(self.order, sk)
        self.items[sk] = item

    def delete(self, sk: str) -> None:
        if self.items.pop(sk, None) is not None:
            del self.order[bisect_left(self.order, sk)]

    def between(self, query: Query) -> Sequence[str]:
        """The sort keys that a query reads, in its direction."""
        low = 0 if query.low is None else bisect_left(self.order, query.low)
        high = len(self.order) if query.high is None else bisect_right(self.order, query.high)
        if query.after is not None and query.backward:
            high = min(high, bisect_left(self.order, query.after))
        elif query.after is not None:
            low = max(low, bisect_right(self.order, query.after))
        return self.order[low:high][::-1] if query.backward else self.order[low:high]


class MemoryEngine:
    """See `table.Engine`."""

    max_transaction = MAX_TRANSACTION
    shards = 1

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._partitions: dict[tuple[Table, str], _Partition] = {}

    def _standing(self, table: Table, pk: str, sk: str) -> Item | None:
        partition = self._partitions.get((table, pk))
        return None if partition is None else partition.items.get(sk)

    def get(self, table: Table, pk: str, sk: str) -> Item | None:
        check_key(pk, sk)
        item = self._standing(table, pk, sk)
        return None if item is None or is_expired(item, int(self._clock())) else item

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]:
        found = {key: self.get(table, *key) for key in keys}
        return {key: item for key, item in found.items() if item is not None}

    def query(self, query: Query) -> Page:
        check_query(query)
        # Most keys of an event have no subscription, so an empty partition must cost nothing.
        if (query.table, query.pk) not in self._partitions:
            return _NOTHING
        now = int(self._clock())
        with self._mutex:
            partition = self._partitions.get((query.table, query.pk))
            if partition is None:
                return _NOTHING
            keys = partition.between(query)
            after = None
            if query.limit is not None and len(keys) > query.limit:
                keys = keys[: query.limit]
                after = keys[-1]
            rows = [Row(sk, partition.items[sk]) for sk in keys]
        return Page([row for row in rows if not is_expired(row.item, now)], after)

    def query_many(self, queries: Sequence[Query]) -> list[Page]:
        return [self.query(query) for query in queries]

    def write(self, write: Write) -> Item | None:
        check_write(write)
        with self._mutex:
            item = self._standing(write.table, write.pk, write.sk)
            if write.condition is not None and not holds(write.condition, item):
                raise ConditionFailed(item)
            new = self._apply(write, item)
        return new if type(write) is Add else item

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        del deferred  # writes in memory need no wait
        check_batch(writes)
        with self._mutex:
            for write in last_of_each(writes):
                self._apply(write, None)

    def transact(self, writes: Sequence[TransactWrite]) -> None:
        check_transaction(writes)
        check_transaction_size(writes)
        with self._mutex:
            items = [self._standing(write.table, write.pk, write.sk) for write in writes]
            failed = [
                not holds(write.condition, item) for write, item in zip(writes, items, strict=True)
            ]
            if any(failed):
                broken = zip(items, failed, strict=True)
                raise TransactionCancelled(failed, [item if bad else None for item, bad in broken])
            for write, item in zip(writes, items, strict=True):
                if isinstance(write, Add):
                    added(item or {}, write)  # raises before anything is changed
            for write, item in zip(writes, items, strict=True):
                self._apply(write, item)

    def _apply(self, write: TransactWrite, standing: Item | None) -> Item | None:
        """What an Add leaves of the item that stands there."""
        place = (write.table, write.pk)
        if isinstance(write, Add):
            item = added(standing or {}, write)
            self._partition(place).put(write.sk, item)
            return item
        if isinstance(write, Put):
            self._partition(place).put(write.sk, dict(write.item))
        elif isinstance(write, Delete) and place in self._partitions:
            self._partitions[place].delete(write.sk)
            if not self._partitions[place].items:
                del self._partitions[place]
        return None

    def _partition(self, place: tuple[Table, str]) -> _Partition:
        partition = self._partitions.get(place)
        if partition is None:
            partition = self._partitions[place] = _Partition()
        return partition

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        return [call() for call in calls]

    def purge_expired(self) -> int:
        """Forget items past their time to live, as DynamoDB does in the background."""
        now = int(self._clock())
        with self._mutex:
            expired = [
                Delete(table, pk, sk)
                for (table, pk), partition in self._partitions.items()
                for sk, item in partition.items.items()
                if is_expired(item, now)
            ]
            for delete in expired:
                self._apply(delete, None)
        return len(expired)
