"""The table port on DynamoDB, through PynamoDB's connection: strongly consistent reads, bounded
retries, and parallel calls in a shared pool of threads."""

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from pynamodb.connection.base import Connection

from farthing.store.attributes import TypedItem, unmarshal, unmarshal_key
from farthing.store.dynamodb_faults import (
    CANCELLED,
    CONDITION_FAILED,
    Backoff,
    CallError,
    CallRefused,
    Fault,
    fault_of,
    given_up,
)
from farthing.store.dynamodb_requests import (
    Request,
    Requests,
)
from farthing.store.limits import (
    check_batch,
    check_key,
    check_query,
    check_size,
    check_transaction,
    check_transaction_size,
    check_write,
    last_of_each,
)
from farthing.store.table import (
    CLOUD_SHARDS,
    MAX_BATCH_GET,
    MAX_BATCH_WRITE,
    MAX_TRANSACTION,
    Absent,
    Add,
    BatchWrite,
    ConditionFailed,
    Item,
    Key,
    Page,
    Put,
    Query,
    Row,
    Table,
    Throttled,
    TransactionCancelled,
    TransactWrite,
    Write,
    is_expired,
)

T = TypeVar("T")

_CONNECT_TIMEOUT = 2.0
_READ_TIMEOUT = 5.0
_READS = frozenset({"GetItem", "BatchGetItem", "Query"})


def connect(region: str | None, host: str | None, workers: int) -> Connection:
    return Connection(
        region=region,
        host=host,
        connect_timeout_seconds=_CONNECT_TIMEOUT,
        read_timeout_seconds=_READ_TIMEOUT,
        # The engine repeats calls itself: botocore does not know that an ADD whose answer was
        # lost must not be sent twice.
        retry_configuration={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=2 * workers,
    )


class DynamoDBEngine:
    """See `table.Engine`. A table's name is `prefix` and the table's own."""

    max_transaction = MAX_TRANSACTION
    shards = CLOUD_SHARDS

    def __init__(
        self,
        prefix: str = "",
        *,
        region: str | None = None,
        host: str | None = None,
        max_workers: int = 16,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        token: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.connection = connect(region, host, max_workers)
        # Made now: making a client is slow, and not safe from several threads.
        _ = self.connection.client
        self._requests = Requests(self.connection, prefix)
        self._clock = clock
        self._backoff = Backoff(sleep, jitter)
        self._token = token
        self._max_workers = max_workers
        self._pool: ThreadPoolExecutor | None = None
        self._pool_lock = threading.Lock()

    def close(self) -> None:
        with self._pool_lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def get(self, table: Table, pk: str, sk: str) -> Item | None:
        check_key(pk, sk)
        found = self._send("GetItem", self._requests.get(table, pk, sk)).get("Item")
        return self._alive(found) if found else None

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]:
        wanted = list(dict.fromkeys(keys))
        for pk, sk in wanted:
            check_key(pk, sk)
        chunks = _chunks(wanted, MAX_BATCH_GET)
        parts = self.together(*(lambda c=chunk: self._get_chunk(table, c) for chunk in chunks))
        return {key: item for part in parts for key, item in part.items()}

    def _get_chunk(self, table: Table, keys: Sequence[Key]) -> dict[Key, Item]:
        found: dict[Key, Item] = {}
        request = self._requests.get_many(table, keys)
        for response in self._drain("BatchGetItem", request, "UnprocessedKeys"):
            for attributes in response["Responses"].get(self._requests.name(table), []):
                item = self._alive(attributes)
                if item is not None:
                    found[unmarshal_key(attributes)] = item
        return found

    def query(self, query: Query) -> Page:
        check_query(query)
        request = self._requests.query(query)
        if request is None:
            return Page([], None)
        response = self._send("Query", request)
        rows = []
        for attributes in response["Items"]:
            item = self._alive(attributes)
            if item is not None:
                rows.append(Row(unmarshal_key(attributes)[1], item))
        last = response.get("LastEvaluatedKey")
        return Page(rows, unmarshal_key(last)[1] if last else None)

    def query_many(self, queries: Sequence[Query]) -> list[Page]:
        return self.together(*(lambda q=query: self.query(q) for query in queries))

    def write(self, write: Write) -> Item | None:
        check_write(write)
        if isinstance(write, Put):
            check_size(write.pk, write.sk, write.item)
        operation, request = self._requests.write(write)
        try:
            response = self._send(operation, request, repeatable=_is_repeatable(write))
        except CallRefused as refused:
            if refused.code != CONDITION_FAILED:
                raise
            if refused.after_loss and refused.current == request.get("Item"):
                return None  # the item in the way is our own write, whose answer was lost
            raise ConditionFailed(_item(refused.current)) from None
        return _item(response.get("Attributes"))

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        del (
            deferred
        )  # DynamoDB does not order writes, so the caller's next call must wait for these
        check_batch(writes)
        for write in writes:
            if isinstance(write, Put):
                check_size(write.pk, write.sk, write.item)
        chunks = _chunks(last_of_each(writes), MAX_BATCH_WRITE)
        self.together(*(lambda c=chunk: self._write_chunk(c) for chunk in chunks))

    def _write_chunk(self, writes: Sequence[BatchWrite]) -> None:
        request = self._requests.write_batch(writes)
        for _ in self._drain("BatchWriteItem", request, "UnprocessedItems"):
            pass

    def transact(self, writes: Sequence[TransactWrite]) -> None:
        if not writes:
            return
        check_transaction(writes)
        check_transaction_size(writes)
        request = {
            "TransactItems": self._requests.transact(writes),
            # A repeat after a lost answer is carried out only once.
            "ClientRequestToken": self._token(),
        }
        try:
            self._send("TransactWriteItems", request)
        except CallRefused as refused:
            cancelled = _cancellation(refused)
            if cancelled is None:
                raise
            raise cancelled from None

    def together(self, *calls: Callable[[], T]) -> list[T]:
        """Run all calls to their end, and then raise the first error.

        This thread itself runs the calls that the pool has not started yet. So it waits only for
        running calls, and nested calls of `together` cannot deadlock.
        """
        if len(calls) < 2:
            return [call() for call in calls]
        pool = self._threads()
        first: Future[T] = Future()
        others = [pool.submit(call) for call in calls[1:]]
        _run(first, calls[0])
        done = [first]
        for future, call in zip(others, calls[1:], strict=True):
            if future.cancel():
                future = Future()
                _run(future, call)
            done.append(future)
        for future in done:
            future.exception()
        return [future.result() for future in done]

    def _threads(self) -> ThreadPoolExecutor:
        with self._pool_lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._max_workers, "dynamodb")
            return self._pool

    def _alive(self, attributes: TypedItem) -> Item | None:
        item = unmarshal(attributes)
        return None if is_expired(item, int(self._clock())) else item

    def _drain(self, operation: str, requests: Request, left: str) -> Iterator[Request]:
        """Send a batch until all of it is done. The number of retries starts again after any
        progress."""
        failures = 0
        while requests:
            response = self._send(operation, {"RequestItems": requests})
            yield response
            rest: Request = response.get(left) or {}
            failures = 0 if _count(rest) < _count(requests) else failures + 1
            if failures == self._backoff.attempts:
                raise Throttled("the store did not complete a batch within all retries")
            if rest:
                self._backoff.pause(failures)
            requests = rest

    def _send(self, operation: str, request: Request, *, repeatable: bool = True) -> Request:
        lost = False
        fault = Fault.THROTTLED
        for failures in range(self._backoff.attempts):
            if failures:
                self._backoff.pause(failures - 1)
            try:
                return self.connection.dispatch(
                    operation, {**request, "ReturnConsumedCapacity": "NONE"}
                )
            except CallError as error:
                fault = fault_of(error)
                if fault is Fault.FINAL:
                    raise CallRefused(error, after_loss=lost) from error
                lost = lost or fault is Fault.LOST
                if lost and not repeatable:
                    break
        raise given_up(fault, maybe_written=lost and operation not in _READS)


def _is_repeatable(write: Write) -> bool:
    """Whether the write may be sent twice. A put of a new item can recognise its own earlier
    write."""
    if write.condition is None:
        return not isinstance(write, Add)
    return isinstance(write, Put) and isinstance(write.condition, Absent)


def _item(attributes: TypedItem | None) -> Item | None:
    return unmarshal(attributes) if attributes else None


def _cancellation(refused: CallRefused) -> TransactionCancelled | None:
    reasons = refused.reasons
    failed = [reason is not None and reason.code == "ConditionalCheckFailed" for reason in reasons]
    if refused.code != CANCELLED or not any(failed):
        return None
    current = [
        _item(reason.raw_item) if reason is not None and broke else None
        for reason, broke in zip(reasons, failed, strict=True)
    ]
    return TransactionCancelled(failed, current)


def _run(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)


def _chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    rest = iter(items)
    return list(iter(lambda: list(islice(rest, size)), []))


def _count(requests: Request) -> int:
    return sum(_length(part) for part in requests.values())


def _length(part: Any) -> int:
    return len(part["Keys"]) if isinstance(part, dict) else len(part)
