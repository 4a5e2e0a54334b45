"""A rebuilt table into the routes table: checked, written by those who hold its parts, then put in
force. What a generation is, and when it is refused, the library's `RoutingTable` knows."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame

from farthing.store.routes import Generation, Route, RoutingTable
from farthing.store.table import Engine

# Called where the engine is used: every executor makes its own.
EngineMaker = Callable[[], Engine]


def generation_name(built: int) -> str:
    """Sorts by time; two rebuilds in one second differ."""
    return f"{built:011d}-{uuid4().hex[:8]}"


def route_of(row: Any) -> Route:
    return Route(
        row["prefix"], row["owner"], row["next_hop"], row["fee"], row["hops"], tuple(row["path"])
    )


def publish_generation(
    make_engine: EngineMaker,
    routes: DataFrame,
    name: str,
    count: int,
    now: int,
    *,
    shrink_percent: int,
    force: bool,
) -> Generation:
    """Whatever fails before the pointer moves leaves the live table as it was, and what was written
    of the new one expires. Parts that are written twice, as Spark may do, change nothing."""
    table = RoutingTable(make_engine())
    if not force:
        table.check(count, shrink_percent=shrink_percent)

    def write_part(rows: Iterator[Any]) -> None:
        RoutingTable(make_engine()).write(name, map(route_of, rows), now)

    routes.foreachPartition(write_part)
    return table.put_in_force(name, count, now, shrink_percent=shrink_percent, force=force)
