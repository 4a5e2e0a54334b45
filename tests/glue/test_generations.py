"""A new table is checked, written beside the live one, and only then pointed at."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from glue_jobs import generations
from glue_jobs.generations import (
    LIFETIME,
    DynamoRoutes,
    GenerationRefused,
    Pointer,
    PointerMoved,
    WriteFailed,
    check_generation,
    generation_name,
    partition_key,
    publish_generation,
    route_items,
    shard_of,
    write_items,
)

LIVE = Pointer("1", 100, 5)
NOW = 1000


def row(number: int, generation: str = "2") -> dict[str, Any]:
    return {"generation": generation, "source": "me", "prefix": f"g.agent.a{number}", "owner": "o",
            "next_hop": "n", "fee": number, "hops": 2, "path": ["n", "o"]}  # fmt: skip


class Rows:
    """What a frame is to a table."""

    def __init__(self, count: int) -> None:
        self.rows = [row(number) for number in range(count)]

    def foreachPartition(self, work: Any) -> None:
        work(iter(self.rows[::2]))
        work(iter(self.rows[1::2]))


@pytest.mark.parametrize("count", [50, 100, 1000])
def test_a_table_that_has_not_shrunk_much_passes(count: int) -> None:
    check_generation(count, LIVE)
    check_generation(count, None)


@pytest.mark.parametrize(("count", "live"), [(0, None), (0, LIVE), (49, LIVE)])
def test_an_empty_or_shrunk_table_is_refused_unless_forced(count: int, live: Any) -> None:
    with pytest.raises(GenerationRefused):
        check_generation(count, live)

    check_generation(count, live, forced=True)


def test_the_share_is_a_setting() -> None:
    check_generation(10, LIVE, max_shrink=0.9)
    with pytest.raises(GenerationRefused, match="25%"):
        check_generation(74, LIVE, max_shrink=0.25)


def test_items_of_a_route() -> None:
    (item,) = route_items([row(7)], expires=99)

    key = {"pk": f"g#2#{shard_of('g.agent.a7')}", "sk": "g.agent.a7"}
    route = {"owner": "o", "next": "n", "fee": 7, "hops": 2, "path": ["n", "o"]}
    assert item == {**key, **route, "expires": 99}
    assert partition_key("2", "g.agent.a7") == item["pk"]
    assert {shard_of(f"g.agent.{n}") for n in range(500)} == set(range(16))


def test_names_sort_by_time_and_never_meet() -> None:
    assert generation_name(9) < generation_name(10) < generation_name(10**10)
    assert generation_name(9) != generation_name(9)


class Failing:
    """A table that notes what happens, and fails where it is told to."""

    def __init__(self, live: Pointer | None, fails: str = "") -> None:
        self.pointer, self.fails, self.calls = live, fails, []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails:
            raise WriteFailed(name)

    def live(self) -> Pointer | None:
        return self.pointer

    def write(self, routes: Any, expires: int) -> None:
        self._call("write")

    def move(self, pointer: Pointer, previous: Pointer | None) -> None:
        self._call("move")
        assert previous == self.pointer
        self.pointer = pointer


def test_the_pointer_moves_last() -> None:
    table = Failing(LIVE)

    pointer = publish_generation(table, Rows(0), "2", 99, NOW)

    assert table.calls == ["write", "move"]
    assert table.pointer == pointer == Pointer("2", 99, NOW)


def test_a_refused_table_is_not_even_written() -> None:
    table = Failing(LIVE)

    with pytest.raises(GenerationRefused):
        publish_generation(table, Rows(0), "2", 1, NOW)

    assert table.calls == []


def test_a_write_that_fails_leaves_the_live_table() -> None:
    table = Failing(LIVE, fails="write")

    with pytest.raises(WriteFailed):
        publish_generation(table, Rows(0), "2", 99, NOW)

    assert table.pointer == LIVE


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("dynamodb")
        client.create_table(
            TableName="routes",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"},
                       {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"}
                                  for name in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )  # fmt: skip
        yield client
        client.delete_table(TableName="routes")  # a mock around this one would keep it


def test_generations_in_dynamodb(dynamodb: Any) -> None:
    table = DynamoRoutes("routes")
    assert table.live() is None

    first = publish_generation(table, Rows(60), "2", 60, NOW)

    assert table.live() == first
    key = {"pk": {"S": partition_key("2", "g.agent.a9")}, "sk": {"S": "g.agent.a9"}}
    item = dynamodb.get_item(TableName="routes", Key=key)["Item"]
    assert item["fee"] == {"N": "9"} and item["path"] == {"L": [{"S": "n"}, {"S": "o"}]}
    assert item["expires"] == {"N": str(NOW + LIFETIME)}
    assert dynamodb.scan(TableName="routes", Select="COUNT")["Count"] == 60 + 1


def test_of_two_rebuilds_at_once_one_moves_the_pointer(dynamodb: Any) -> None:
    table = DynamoRoutes("routes")
    table.move(Pointer("2", 1, NOW), None)

    with pytest.raises(PointerMoved):
        table.move(Pointer("3", 1, NOW), None)
    with pytest.raises(PointerMoved):
        table.move(Pointer("3", 1, NOW), LIVE)

    assert table.live() == Pointer("2", 1, NOW)


class Busy:
    """A client that takes one item of each batch, or none."""

    def __init__(self, takes: int) -> None:
        self.takes, self.taken, self.sizes = takes, [], []

    def batch_write_item(self, RequestItems: dict[str, list[Any]]) -> dict[str, Any]:
        ((table, batch),) = RequestItems.items()
        self.sizes.append(len(batch))
        self.taken += [each["PutRequest"]["Item"]["sk"]["S"] for each in batch[: self.takes]]
        return {"UnprocessedItems": {table: batch[self.takes :]} if batch[self.takes :] else {}}


def test_what_was_not_taken_is_sent_again_after_a_wait() -> None:
    client, waits = Busy(takes=5), []
    items = list(route_items([row(number) for number in range(60)], 1))

    assert write_items(client, "routes", iter(items), waits.append) == 60

    assert sorted(client.taken) == sorted(item["sk"] for item in items)
    assert max(client.sizes) == 25 and waits and max(waits) <= 5


def test_a_table_that_takes_nothing_is_an_error() -> None:
    with pytest.raises(WriteFailed):
        write_items(Busy(takes=0), "routes", route_items([row(1)], 1), lambda seconds: None)


def test_the_writer_needs_nothing_of_this_process() -> None:
    """Spark sends it to executors."""
    import pickle

    from pyspark import cloudpickle

    sent: list[bytes] = []
    frame = SimpleNamespace(foreachPartition=lambda work: sent.append(cloudpickle.dumps(work)))

    DynamoRoutes("routes").write(frame, 1)  # type: ignore[arg-type]

    assert callable(pickle.loads(sent[0])) and generations.__name__ == "glue_jobs.generations"
