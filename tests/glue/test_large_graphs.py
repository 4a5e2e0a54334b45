"""What holds for graphs too large for a test: nothing of them is brought to the driver, a hub is
added up where its followers are, and the order of the rows decides nothing."""

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import glue_jobs
from glue_jobs.graph import follower_counts
from glue_jobs.paths import best_labels, extended
from glue_jobs.rebuild_routes import rebuild
from tests.glue.world import World, options, write_lines

# Who may bring rows to the driver: all of them bounded, whatever the graph.
BOUNDED = {
    ("rebuild_routes", "_refusals"),  # a row for each reason
    ("trust_scores", "credit_of"),  # as many as the owner follows
    ("trust_scores", "_only"),  # one row
    ("relay_report", "relay_report"),  # by day, and a few kinds and payers
    ("relay_report", "_totals"),  # one row
}
TO_THE_DRIVER = {"collect", "first", "head", "take", "tail", "toPandas", "toLocalIterator", "show"}


def calls_to_the_driver() -> Iterator[tuple[str, str]]:
    for path in sorted(Path(glue_jobs.__file__).parent.glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                for call in ast.walk(function):
                    named = getattr(getattr(call, "func", None), "attr", "")
                    if isinstance(call, ast.Call) and named in TO_THE_DRIVER:
                        yield path.stem, function.name


def test_only_what_is_bounded_comes_to_the_driver() -> None:
    assert set(calls_to_the_driver()) == BOUNDED


def test_ansi_mode_is_on_as_it_is_on_glue(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"


def plan_of(frame: DataFrame) -> list[str]:
    """From the last step to the first."""
    return frame._jdf.queryExecution().executedPlan().toString().splitlines()


@pytest.mark.parametrize("made", ["labels", "followers"])
def test_a_hub_sends_one_row_from_each_partition(spark: SparkSession, made: str) -> None:
    """Its million incoming edges are added up before they are moved."""
    edges = spark.createDataFrame([(1, 2, 0)], "src bigint, dst bigint, fee bigint")
    start = Row(source=9, node=1, fee=0, hops=1, path=[1], level=1)
    labels = spark.createDataFrame(
        [start], "source bigint, node bigint, fee bigint, hops int, path array<bigint>, level int"
    )
    frame, partial = {
        "labels": (best_labels(extended(labels, edges)), "partial_min"),
        "followers": (follower_counts(edges), "partial_count"),
    }[made]
    plan = plan_of(frame)
    moved = next(at for at, line in enumerate(plan) if "Exchange hashpartitioning" in line)
    assert partial in plan[moved + 1]


def crowd() -> World:
    """Three ways to everybody, all of the same fee and length."""
    world, names = World("crowd"), [f"n{number}" for number in range(8)]
    world.agent("me", "a", "b", "c")
    for way in ("a", "b", "c"):
        world.agent(way, *names, fee=1)
    for number, name in enumerate(names):
        world.agent(name, names[number - 1], fee=1, address=world.address(f"x{number // 2}"))
    return world


def test_neither_order_nor_partitions_decide(spark: SparkSession, tmp_path: Path) -> None:
    world, tables = crowd(), []
    for number, partitions in enumerate((1, 5)):
        random.Random(number).shuffle(world.events)
        path = write_lines(tmp_path / f"{number}.jsonl", world.events)
        with_partitions = spark.newSession()
        with_partitions.conf.set("spark.sql.shuffle.partitions", partitions)
        frame, _ = rebuild(with_partitions, [path], [world.key("me")], options())
        tables.append({row.prefix: tuple(row) for row in frame.collect()})
    assert tables[0] == tables[1]
    assert len(tables[0]) == 3 + 4, "of two that claim one address, one has it"
    lowest = min(world.key(way) for way in ("a", "b", "c"))
    chosen = {row[4] for prefix, row in tables[0].items() if ".x" in prefix}
    assert chosen == {lowest}
