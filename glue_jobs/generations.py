"""Publishes a rebuilt routing table: checks it, has the executors write its parts, and puts it in
force. The library's `RoutingTable` defines what a generation is and when one is refused."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame

from farthing.store.routes import Generation, Route, RoutingTable
from farthing.store.table import Engine

# Called on each executor, which makes an engine of its own.
EngineMaker = Callable[[], Engine]


def generation_name(built: int) -> str:
    """A name that sorts by time. Two rebuilds in one second have different names."""
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
    """Write a new table and put it in force. If a step fails before the pointer moves, the live
    table stays as it was, and the rows already written expire. Spark may write a part twice, which
    changes nothing."""
    table = RoutingTable(make_engine())
    if not force:
        table.check(count, shrink_percent=shrink_percent)

    def write_part(rows: Iterator[Any]) -> None:
        RoutingTable(make_engine()).write(name, map(route_of, rows), now)

    routes.foreachPartition(write_part)
    return table.put_in_force(name, count, now, shrink_percent=shrink_percent, force=force)
