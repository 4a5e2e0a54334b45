"""Costs, worked out by hand from DynamoDB's rules."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from farthing.store.attributes import item_size, value_size
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import (
    Absent,
    Add,
    Check,
    ConditionFailed,
    Delete,
    Equals,
    Item,
    Put,
    Query,
    Table,
    TransactionCancelled,
)
from infra.costs.counting import Cost, CountingEngine

LEDGER, POSTINGS = Table.LEDGER, Table.POSTINGS


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[CountingEngine]:
    inner = SqliteEngine(tmp_path)
    yield CountingEngine(inner)
    inner.close()


def of_size(size: int, sk: str = "s") -> Item:
    """An item of so many bytes under the key ("p", sk)."""
    item = {"x": "y" * (size - 4 - 1 - len(sk) - 1)}
    assert item_size("p", sk, item) == size
    return item


def put(size: int, sk: str = "s") -> Put:
    return Put(LEDGER, "p", sk, of_size(size, sk))


class TestSizes:
    @pytest.mark.parametrize(
        ("value", "size"),
        [
            ("", 0),
            ("é", 2),
            (b"\x00\xff", 2),
            (None, 1),
            (True, 1),
            (0, 1),
            (7, 2),
            (-7, 3),
            (123, 3),
            (1_000_000, 2),
            (2**64, 11),
            ([], 3),
            (["a", "bc"], 3 + 3 + 2),
            ({"name": "v"}, 3 + 5 + 1),
            ([[]], 3 + 3 + 1),
        ],
    )
    def test_values_have_dynamodbs_sizes(self, value: object, size: int) -> None:
        assert value_size(value) == size

    def test_an_item_has_dynamodbs_size(self) -> None:
        # pk + 5, sk + 1, id + 4, tags + (3 + 2 elements + 1 + 2)
        assert item_size("äbcd", "1", {"id": b"1234", "tags": ["e", "fg"]}) == 7 + 3 + 6 + 12


class TestReads:
    def test_a_get_rounds_up_to_four_kilobytes(self, engine: CountingEngine) -> None:
        for size, units in ((100, 1), (4096, 1), (4097, 2), (12288, 3)):
            engine.write(put(size))
            engine.reset()
            engine.get(LEDGER, "p", "s")
            assert engine.snapshot() == Cost(1, units, 0, 1)

    def test_a_get_of_nothing_costs_one(self, engine: CountingEngine) -> None:
        engine.get(LEDGER, "p", "nothing")
        assert engine.snapshot() == Cost(1, 1, 0, 1)

    def test_many_round_up_each(self, engine: CountingEngine) -> None:
        engine.write_batch([put(100, "a"), put(4097, "b"), put(100, "c")])
        engine.reset()
        engine.get_many(LEDGER, [("p", sk) for sk in "abca-"])
        assert engine.snapshot() == Cost(1, 1 + 2 + 1 + 1, 0, 1)

    def test_many_come_in_requests_of_a_hundred_side_by_side(self, engine: CountingEngine) -> None:
        engine.get_many(LEDGER, [("p", str(n)) for n in range(250)])
        assert engine.snapshot() == Cost(3, 250, 0, 1)

    def test_a_query_rounds_up_once(self, engine: CountingEngine) -> None:
        engine.write_batch([put(2000, str(n)) for n in range(5)])
        engine.reset()
        engine.query(Query(LEDGER, "p"))
        assert engine.reset() == Cost(1, 3, 0, 1)
        engine.query(Query(LEDGER, "p", limit=2))
        assert engine.reset() == Cost(1, 1, 0, 1)
        engine.query(Query(LEDGER, "nothing"))
        assert engine.reset() == Cost(1, 1, 0, 1)
        engine.query_many([Query(LEDGER, "p"), Query(LEDGER, "p", limit=1)])
        assert engine.reset() == Cost(2, 3 + 1, 0, 1)

    def test_empty_requests_cost_nothing(self, engine: CountingEngine) -> None:
        engine.get_many(LEDGER, [])
        engine.query_many([])
        engine.write_batch([])
        engine.transact([])
        engine.together()
        assert engine.snapshot() == Cost(0, 0, 0, 0)


class TestWrites:
    def test_the_larger_of_old_and_new_counts(self, engine: CountingEngine) -> None:
        for size, units in ((1024, 1), (1025, 2), (3000, 3), (100, 3), (100, 1)):
            engine.write(put(size))
            assert engine.reset() == Cost(1, 0, units, 1)

    def test_a_delete_costs_what_it_removes(self, engine: CountingEngine) -> None:
        engine.write(put(2048))
        engine.reset()
        engine.write(Delete(LEDGER, "p", "s"))
        assert engine.reset() == Cost(1, 0, 2, 1)
        engine.write(Delete(LEDGER, "p", "s"))
        assert engine.reset() == Cost(1, 0, 1, 1)

    def test_an_add_costs_the_whole_item(self, engine: CountingEngine) -> None:
        engine.write(put(1023))
        engine.reset()
        engine.write(Add(LEDGER, "p", "s", {"n": 1}))
        assert engine.reset() == Cost(1, 0, 2, 1)
        engine.write(Add(LEDGER, "p", "s", {}, {"x": ""}))
        assert engine.reset() == Cost(1, 0, 2, 1)
        engine.write(Add(LEDGER, "p", "s", {"n": 1}))
        assert engine.reset() == Cost(1, 0, 1, 1)

    def test_a_condition_that_fails_costs_as_well(self, engine: CountingEngine) -> None:
        engine.write(put(1500))
        engine.reset()
        with pytest.raises(ConditionFailed):
            engine.write(Put(LEDGER, "p", "s", of_size(2500), Absent()))
        assert engine.reset() == Cost(1, 0, 3, 1)
        with pytest.raises(ConditionFailed):
            engine.write(Delete(LEDGER, "p", "s", Equals("x", "")))
        assert engine.reset() == Cost(1, 0, 2, 1)

    def test_a_batch_costs_as_its_parts(self, engine: CountingEngine) -> None:
        engine.write(put(5000, "00"))
        engine.reset()
        engine.write_batch([put(100 if n else 1100, f"{n:02}") for n in range(60)])
        assert engine.reset() == Cost(3, 0, 5 + 59, 1)
        engine.write_batch([put(9000), put(900)])
        assert engine.reset() == Cost(1, 0, 1, 1)

    def test_a_transaction_costs_twice(self, engine: CountingEngine) -> None:
        engine.write(put(1500, "checked"))
        engine.reset()
        steps = [
            put(100, "a"),
            put(2000, "b"),
            Delete(LEDGER, "p", "nothing"),
            Check(LEDGER, "p", "checked", Equals("x", of_size(1500, "checked")["x"])),
        ]
        engine.transact(steps)
        assert engine.reset() == Cost(1, 0, 2 * (1 + 2 + 1 + 2), 1)
        with pytest.raises(TransactionCancelled):
            engine.transact([put(1500), Check(LEDGER, "p", "a", Absent())])
        assert engine.reset() == Cost(1, 0, 2 * (2 + 1), 1)


class TestRoundTrips:
    def test_calls_one_after_another_add_up(self, engine: CountingEngine) -> None:
        for _ in range(3):
            engine.get(LEDGER, "p", "s")
        assert engine.snapshot().round_trips == 3

    def test_calls_together_are_as_long_as_the_longest(self, engine: CountingEngine) -> None:
        def read(times: int) -> int:
            for _ in range(times):
                engine.get(LEDGER, "p", "s")
            return times

        engine.get(LEDGER, "p", "s")
        together = engine.together(
            lambda: read(2),
            lambda: sum(engine.together(lambda: read(3), lambda: read(1))) + read(1),
            lambda: read(0),
        )
        engine.get(LEDGER, "p", "s")
        assert together == [2, 5, 0]
        assert engine.snapshot() == Cost(9, 9, 0, 1 + 4 + 1)

    def test_a_failing_call_does_not_lose_the_count(self, engine: CountingEngine) -> None:
        engine.write(put(100))
        engine.reset()
        with pytest.raises(ConditionFailed):
            engine.together(
                lambda: [engine.get(LEDGER, "p", "s") for _ in range(2)],
                lambda: engine.write(Put(LEDGER, "p", "s", {}, Absent())),
            )
        assert engine.snapshot().round_trips == 2
