"""Generations of the routing table: written beside the live one, checked, and then pointed at.

A reader takes the pointer and reads that generation only, so it sees the old table or the new one.
Every item leaves by itself a week after it was written. The live table is rebuilt daily; one that
could not be for a week holds routes that nobody vouches for any more.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol
from uuid import uuid4
from zlib import crc32

from pyspark.sql import DataFrame

SHARDS = 16
LIFETIME = 7 * 24 * 3600
POINTER_PK = "live"
POINTER_SK = "pointer"
_BATCH = 25
_ATTEMPTS = 10
_LONGEST_WAIT = 5.0

Item = dict[str, Any]


class GenerationRefused(Exception):
    """A new table that must not become the live one."""


class PointerMoved(GenerationRefused):
    """Another rebuild has moved the pointer meanwhile."""


class WriteFailed(Exception):
    """The table did not take all items."""


@dataclass(frozen=True)
class Pointer:
    generation: str
    count: int
    built: int  # epoch seconds

    def as_item(self) -> Item:
        fields = {"generation": self.generation, "count": self.count, "built": self.built}
        return {"pk": POINTER_PK, "sk": POINTER_SK, **fields}


class RoutesTable(Protocol):
    """Where generations are kept."""

    def live(self) -> Pointer | None: ...

    def write(self, routes: DataFrame, expires: int) -> None:
        """Write all routes; writing them again changes nothing."""

    def move(self, pointer: Pointer, previous: Pointer | None) -> None:
        """Point to a generation if the previous one still is the live one, else PointerMoved."""


def generation_name(built: int) -> str:
    """Sorts by time; two rebuilds in one second differ."""
    return f"{built:011d}-{uuid4().hex[:8]}"


def check_generation(
    count: int, live: Pointer | None, *, max_shrink: float = 0.5, forced: bool = False
) -> None:
    """A table that is empty, or has lost too large a share of the live one's routes, is refused:
    it is more likely a broken source than a network that went away."""
    if forced:
        return
    if count == 0:
        raise GenerationRefused("the new table is empty")
    if live is not None and count < live.count * (1 - max_shrink):
        raise GenerationRefused(
            f"the new table has {count} routes, the live one {live.count}: "
            f"it shrank by more than {max_shrink:.0%}"
        )


def publish_generation(
    table: RoutesTable,
    routes: DataFrame,
    generation: str,
    count: int,
    now: int,
    *,
    max_shrink: float = 0.5,
    forced: bool = False,
) -> Pointer:
    """Check, write all routes, then move the pointer. Whatever fails before leaves the live table
    as it was, and what was written of the new one expires."""
    live = table.live()
    check_generation(count, live, max_shrink=max_shrink, forced=forced)
    table.write(routes, now + LIFETIME)
    pointer = Pointer(generation, count, now)
    table.move(pointer, live)
    return pointer


def shard_of(prefix: str) -> int:
    return crc32(prefix.encode()) % SHARDS


def partition_key(generation: str, prefix: str) -> str:
    return f"g#{generation}#{shard_of(prefix)}"


def route_items(rows: Iterable[Any], expires: int) -> Iterator[Item]:
    """Rows of the routes frame as items of the routes table, the same in every engine."""
    for row in rows:
        yield {
            "pk": partition_key(row["generation"], row["prefix"]),
            "sk": row["prefix"],
            "owner": row["owner"],
            "next": row["next_hop"],
            "fee": int(row["fee"]),
            "hops": int(row["hops"]),
            "path": list(row["path"]),
            "expires": expires,
        }


def write_items(
    client: Any, table: str, items: Iterable[Item], wait: Callable[[float], None] = time.sleep
) -> int:
    """Batch writes with botocore's client; what the table did not take is sent again, later."""
    from boto3.dynamodb.types import TypeSerializer

    typed = TypeSerializer().serialize
    requests = ({"PutRequest": {"Item": typed(item)["M"]}} for item in items)
    written = 0
    while batch := list(islice(requests, _BATCH)):
        _write_batch(client, table, batch, wait)
        written += len(batch)
    return written


def _write_batch(client: Any, table: str, batch: list[Any], wait: Callable[[float], None]) -> None:
    for attempt in range(_ATTEMPTS):
        answer = client.batch_write_item(RequestItems={table: batch})
        batch = answer.get("UnprocessedItems", {}).get(table, [])
        if not batch:
            return
        wait(random.uniform(0, min(_LONGEST_WAIT, 0.05 * 2**attempt)))  # noqa: S311 - jitter
    raise WriteFailed(f"{table} left {len(batch)} items unwritten after {_ATTEMPTS} attempts")


class DynamoRoutes:
    """The routes table in DynamoDB. Clients are made where they are used: executors have theirs."""

    def __init__(self, name: str) -> None:
        self._name = name

    def live(self) -> Pointer | None:
        key = {"pk": {"S": POINTER_PK}, "sk": {"S": POINTER_SK}}
        item = _client().get_item(TableName=self._name, Key=key, ConsistentRead=True).get("Item")
        if item is None:
            return None
        return Pointer(item["generation"]["S"], int(item["count"]["N"]), int(item["built"]["N"]))

    def write(self, routes: DataFrame, expires: int) -> None:
        name = self._name

        def write_partition(rows: Iterator[Any]) -> None:
            write_items(_client(), name, route_items(rows, expires))

        routes.foreachPartition(write_partition)

    def move(self, pointer: Pointer, previous: Pointer | None) -> None:
        from boto3.dynamodb.types import TypeSerializer

        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if previous is not None:
            condition = {
                "ConditionExpression": "generation = :previous",
                "ExpressionAttributeValues": {":previous": {"S": previous.generation}},
            }
        client = _client()
        try:
            item = TypeSerializer().serialize(pointer.as_item())["M"]
            client.put_item(TableName=self._name, Item=item, **condition)
        except client.exceptions.ConditionalCheckFailedException:
            raise PointerMoved("another rebuild has moved the pointer meanwhile") from None


def _client() -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client("dynamodb", config=Config(retries={"mode": "adaptive", "max_attempts": 10}))
