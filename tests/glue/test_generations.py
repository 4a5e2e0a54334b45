"""A new table is checked, written beside the live one, and only then pointed at."""

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from moto import mock_aws
from pyspark import cloudpickle

from farthing.store.dynamodb import DynamoDBEngine
from farthing.store.memory import MemoryEngine
from farthing.store.routes import (
    GENERATION_SECONDS,
    Generation,
    GenerationRefused,
    Route,
    RoutingTable,
)
from farthing.store.sqlite import SqliteEngine
from glue_jobs.generations import EngineMaker, generation_name, publish_generation
from tests.store.faulty import Crash, Fault, FaultyEngine, nth
from tests.store.tables import create_tables

NOW = 1_800_000_000
REGION = "eu-central-1"


class Rows:
    """What a frame is to a table: parts, each written by somebody else, and one of them twice."""

    def __init__(self, count: int) -> None:
        self.rows = [
            {"generation": "?", "source": "me", "prefix": f"g.agent.a{number}", "owner": "o",
             "next_hop": "n", "fee": number, "hops": 2, "path": ["n", "o"]}
            for number in range(count)
        ]  # fmt: skip

    def foreachPartition(self, work: Callable[[Iterator[Any]], None]) -> None:
        for part in (self.rows[::2], self.rows[1::2], self.rows[::2]):
            work(iter(part))


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "dynamodb"])
def make_engine(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EngineMaker]:
    match request.param:
        case "sqlite":
            sqlite = SqliteEngine(tmp_path, clock=clock)
            yield lambda: sqlite
            sqlite.close()
        case _:
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.setenv(name, "test")
            with mock_aws():
                prefix = f"{tmp_path.name}-"
                dynamodb = DynamoDBEngine(prefix, region=REGION, clock=clock)
                create_tables(dynamodb.connection, prefix)
                yield lambda: dynamodb
                dynamodb.close()


def publish(make_engine: EngineMaker, name: str, count: int, **more: Any) -> Generation:
    rules = {"shrink_percent": 50, "force": False, **more}
    return publish_generation(make_engine, Rows(count), name, count, NOW, **rules)  # type: ignore[arg-type]


def prefixes(table: RoutingTable, name: str) -> set[str]:
    return {route.prefix for route in table.routes(name)}


def test_a_generation_is_written_whole_and_put_in_force(make_engine: EngineMaker) -> None:
    table = RoutingTable(make_engine(), cache_seconds=0)
    assert table.live() is None

    publish(make_engine, "1", 60)

    assert table.live() == Generation("1", 60, NOW)
    assert prefixes(table, "1") == {f"g.agent.a{number}" for number in range(60)}
    assert table.lookup("g.agent.a9.x") == Route("g.agent.a9", "o", "n", 9, 2, ("n", "o"))


def test_old_generations_expire(make_engine: EngineMaker, clock: Clock) -> None:
    table = RoutingTable(make_engine())
    publish(make_engine, "1", 3)

    clock.now = NOW + GENERATION_SECONDS

    assert prefixes(table, "1") == set()


def test_the_table_in_force_is_renewed_until_another_takes_its_place(
    make_engine: EngineMaker, clock: Clock
) -> None:
    table = RoutingTable(make_engine())
    publish(make_engine, "1", 3)
    assert table.renew(NOW + GENERATION_SECONDS // 2 - 1) == 0

    for half in range(1, 5):
        clock.now = NOW + half * GENERATION_SECONDS // 2
        assert table.renew(clock.now) == 3
        assert table.renew(clock.now) == 0
    assert len(prefixes(table, "1")) == 3
    assert table.live() == Generation("1", 3, NOW), "no younger than it is"

    table.put_in_force("2", 3, clock.now, shrink_percent=50, force=False)
    clock.now += GENERATION_SECONDS
    assert prefixes(table, "1") == set()


def test_a_table_that_is_replaced_while_it_is_renewed_stays_replaced(
    make_engine: EngineMaker,
) -> None:
    publish(make_engine, "1", 3)

    def other_comes_first(_: int, operation: str) -> None:
        if operation == "write":
            RoutingTable(make_engine()).put_in_force("2", 3, NOW, shrink_percent=50, force=False)

    RoutingTable(FaultyEngine(make_engine(), other_comes_first)).renew(NOW + GENERATION_SECONDS)

    assert RoutingTable(make_engine()).live() == Generation("2", 3, NOW)


@pytest.mark.parametrize("count", [5, 10, 100])
def test_a_table_that_has_not_shrunk_much_passes(make_engine: EngineMaker, count: int) -> None:
    publish(make_engine, "1", 10)

    assert publish(make_engine, "2", count).count == count


@pytest.mark.parametrize("count", [0, 4])
def test_an_empty_or_shrunk_table_is_not_even_written(make_engine: EngineMaker, count: int) -> None:
    table = RoutingTable(make_engine())
    publish(make_engine, "1", 10)

    with pytest.raises(GenerationRefused):
        publish(make_engine, "2", count)

    assert table.live() == Generation("1", 10, NOW)
    assert prefixes(table, "2") == set() and len(prefixes(table, "1")) == 10


def test_the_first_table_must_not_be_empty_either(make_engine: EngineMaker) -> None:
    with pytest.raises(GenerationRefused):
        publish(make_engine, "1", 0)


def test_an_operator_may_force_it(make_engine: EngineMaker) -> None:
    publish(make_engine, "1", 10)

    assert publish(make_engine, "2", 1, force=True).count == 1
    assert publish(make_engine, "3", 0, force=True).count == 0


def test_the_share_is_a_setting(make_engine: EngineMaker) -> None:
    publish(make_engine, "1", 10)

    publish(make_engine, "2", 1, shrink_percent=90)
    publish(make_engine, "3", 10)
    with pytest.raises(GenerationRefused, match="25 percent"):
        publish(make_engine, "4", 7, shrink_percent=25)


def test_of_two_that_move_the_pointer_at_once_one_is_told(make_engine: EngineMaker) -> None:
    publish(make_engine, "1", 10)

    def other_comes_first(_: int, operation: str) -> None:
        if operation == "write":
            RoutingTable(make_engine()).put_in_force("2", 10, NOW, shrink_percent=50, force=False)

    late = RoutingTable(FaultyEngine(make_engine(), other_comes_first))
    with pytest.raises(GenerationRefused, match="meanwhile"):
        late.put_in_force("3", 10, NOW, shrink_percent=50, force=False)

    assert RoutingTable(make_engine()).live() == Generation("2", 10, NOW)


def test_a_writer_that_dies_leaves_the_live_table(make_engine: EngineMaker) -> None:
    publish(make_engine, "1", 10)
    dying = FaultyEngine(make_engine(), nth(0, {"write_batch"}, Fault(Crash, written=2)))

    with pytest.raises(Crash):
        publish(lambda: dying, "2", 20)

    table = RoutingTable(make_engine())
    assert table.live() == Generation("1", 10, NOW)
    assert table.lookup("g.agent.a15") is None, "written, and in nobody's sight"


def test_a_reader_stays_with_the_generation_that_it_began_with(make_engine: EngineMaker) -> None:
    publish(make_engine, "1", 10)
    reader = RoutingTable(make_engine(), clock=lambda: NOW)
    assert reader.lookup("g.agent.a1") is not None

    publish(make_engine, "2", 5)

    assert reader.lookup("g.agent.a9") is not None, "for as long as it remembers the pointer"


def test_the_writer_needs_nothing_of_this_process() -> None:
    """Spark sends it to executors."""
    sent: list[bytes] = []
    frame = SimpleNamespace(foreachPartition=lambda work: sent.append(cloudpickle.dumps(work)))
    make = partial(_Taking, "prefix-")

    publish_generation(make, frame, "1", 1, NOW, shrink_percent=50, force=True)  # type: ignore[arg-type]

    write = pickle.loads(sent[0])
    write(iter(Rows(2).rows))


class _Taking(MemoryEngine):
    def __init__(self, prefix: str) -> None:
        super().__init__(clock=lambda: NOW)


def test_names_sort_by_time_and_never_meet() -> None:
    assert generation_name(9) < generation_name(10) < generation_name(10**10)
    assert generation_name(9) != generation_name(9)
