"""What every engine does alike."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.store.table import (
    EXPIRES,
    Absent,
    Add,
    AtLeast,
    Check,
    Condition,
    ConditionFailed,
    Delete,
    Engine,
    Equals,
    Item,
    LessThan,
    Page,
    Put,
    Query,
    StoreError,
    Table,
    TransactionCancelled,
    read_all,
)
from tests.store.conftest import START, Clock

EVENTS, POSTINGS, LEDGER, SESSIONS = Table.EVENTS, Table.POSTINGS, Table.LEDGER, Table.SESSIONS

Fresh = Callable[[], str]


def keys_of(page: Page) -> list[str]:
    return [row.sk for row in page.rows]


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            False,
            0,
            -1,
            2**53 + 1,
            2**63,
            2**64 - 1,
            2**64,
            -(2**64),
            10**37,
            "",
            "ünï¢ødé \U0001f9ff \x00 \x7f",
            b"",
            bytes(range(256)),
            [],
            {},
            [1, "a", None, [b"x", {"deep": [True]}]],
            {"a.b[0]": {"n": 2**64}},
            {"$bytes": "not bytes"},
            [{"$bytes": b"bytes in the clothes of others"}],
            {"$int": "12"},
            {"$$": {"$bytes": ["x"]}},
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("table", [LEDGER, SESSIONS])
    def test_come_back_as_they_went_in(
        self, engine: Engine, fresh: Fresh, table: Table, value: Any
    ) -> None:
        pk = fresh()
        engine.write(Put(table, pk, "a", {"value": value}))
        (row,) = engine.query(Query(table, pk)).rows
        for item in (engine.get(table, pk, "a"), row.item):
            assert item == {"value": value}
            assert type(item["value"]) is type(value)

    def test_an_item_may_have_no_attributes(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        assert engine.write(Put(EVENTS, pk, "a", {})) is None
        assert engine.get(EVENTS, pk, "a") == {}
        assert engine.write(Put(EVENTS, pk, "a", {"n": 1})) == {}
        assert engine.write(Put(EVENTS, pk, "a", {})) == {"n": 1}
        assert engine.write(Delete(EVENTS, pk, "a")) == {}

    @pytest.mark.usefixtures("strict")
    @pytest.mark.parametrize("value", [{1, 2}, [object()], {"a": {1: 2}}, object()])
    def test_values_of_other_types_are_refused(
        self, engine: Engine, fresh: Fresh, value: Any
    ) -> None:
        pk = fresh()
        with pytest.raises(TypeError):
            engine.write(Put(LEDGER, pk, "a", {"value": value}))
        with pytest.raises(TypeError):
            engine.write_batch([Put(LEDGER, pk, "a", {"value": value})])
        with pytest.raises(TypeError):
            engine.transact([Put(LEDGER, pk, "a", {"value": value})])
        assert engine.get(LEDGER, pk, "a") is None

    @pytest.mark.usefixtures("strict")
    @pytest.mark.parametrize("item", [{"": 1}, {"map": {"": 1}}], ids=repr)
    def test_names_are_not_empty(self, engine: Engine, fresh: Fresh, item: Item) -> None:
        with pytest.raises(ValueError, match="empty"):
            engine.write(Put(LEDGER, fresh(), "a", item))

    @pytest.mark.usefixtures("strict")
    def test_tuples_come_back_as_lists(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write(Put(LEDGER, pk, "a", {"tags": (("e", "1"), ("p", "2"))}))
        assert engine.get(LEDGER, pk, "a") == {"tags": [["e", "1"], ["p", "2"]]}

    @pytest.mark.usefixtures("strict")
    def test_what_is_kept_is_a_copy(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        written = {"list": [1]}
        engine.write(Put(LEDGER, pk, "a", written))
        written["list"].append(2)
        assert engine.get(LEDGER, pk, "a") == {"list": [1]}


class TestRefusals:
    @pytest.mark.parametrize(
        ("pk", "sk"), [("", "a"), ("a", ""), ("é" * 1025, "a"), ("a", "é" * 513)]
    )
    def test_keys_too_short_or_too_long(self, engine: Engine, pk: str, sk: str) -> None:
        with pytest.raises(ValueError, match="key"):
            engine.get(LEDGER, pk, sk)
        with pytest.raises(ValueError, match="key"):
            engine.get_many(LEDGER, [(pk, sk)])
        for write in (
            Put(LEDGER, pk, sk, {}),
            Delete(LEDGER, pk, sk),
            Add(LEDGER, pk, sk, {"n": 1}),
        ):
            with pytest.raises(ValueError, match="key"):
                engine.write(write)
            with pytest.raises(ValueError, match="key"):
                engine.transact([write])
        with pytest.raises(ValueError, match="key"):
            engine.write_batch([Put(LEDGER, pk, sk, {})])

    def test_the_longest_keys_pass(self, engine: Engine) -> None:
        engine.write(Put(LEDGER, "é" * 1024, "é" * 512, {"n": 1}))
        assert engine.get(LEDGER, "é" * 1024, "é" * 512) == {"n": 1}

    def test_attributes_named_as_the_key(self, engine: Engine, fresh: Fresh) -> None:
        for write in (
            Put(LEDGER, fresh(), "a", {"pk": 1}),
            Add(LEDGER, fresh(), "a", {"sk": 1}),
            Add(LEDGER, fresh(), "a", {}, {"pk": 1}),
        ):
            with pytest.raises(ValueError, match="name"):
                engine.write(write)

    def test_adding_to_what_is_assigned(self, engine: Engine, fresh: Fresh) -> None:
        with pytest.raises(ValueError, match="got both"):
            engine.write(Add(LEDGER, fresh(), "a", {"n": 1}, {"n": 2}))

    @pytest.mark.usefixtures("strict")
    def test_an_item_above_400_kilobytes_is_refused(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write(Put(LEDGER, pk, "a", {"fits": "x" * 390_000}))
        engine.write(Delete(LEDGER, pk, "a"))
        with pytest.raises(ValueError, match="bytes"):
            engine.write(Put(LEDGER, pk, "b", {"large": "x" * 400 * 1024}))
        with pytest.raises(ValueError, match="bytes"):
            engine.write_batch([Put(LEDGER, pk, "b", {"large": "x" * 400 * 1024})])

    def test_a_query_for_less_than_one(self, engine: Engine, fresh: Fresh) -> None:
        with pytest.raises(ValueError, match="limit"):
            engine.query(Query(LEDGER, fresh(), limit=0))

    def test_a_condition_in_a_batch_is_refused(self, engine: Engine, fresh: Fresh) -> None:
        with pytest.raises(ValueError, match="condition"):
            engine.write_batch([Put(LEDGER, fresh(), "a", {}, Absent())])


class TestWrites:
    def test_put_and_delete_return_what_stood_there(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        assert engine.write(Put(LEDGER, pk, "a", {"n": 1})) is None
        assert engine.write(Put(LEDGER, pk, "a", {"m": b"2"})) == {"n": 1}
        assert engine.get(LEDGER, pk, "a") == {"m": b"2"}
        assert engine.write(Delete(LEDGER, pk, "a")) == {"m": b"2"}
        assert engine.write(Delete(LEDGER, pk, "a")) is None
        assert engine.get(LEDGER, pk, "a") is None

    def test_add_returns_what_stands_now(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        add = Add(LEDGER, pk, "a", {"in": 5, "out": -7}, {"status": "open", "data": b"\x00"})
        assert engine.write(add) == {"in": 5, "out": -7, "status": "open", "data": b"\x00"}
        assert engine.write(Add(LEDGER, pk, "a", {"in": 2**64})) == {
            "in": 2**64 + 5,
            "out": -7,
            "status": "open",
            "data": b"\x00",
        }

    @pytest.mark.usefixtures("faithful")
    def test_add_of_nothing_makes_the_item(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        assert engine.write(Add(LEDGER, pk, "a", {})) == {}
        assert engine.get(LEDGER, pk, "a") == {}

    def test_add_to_what_is_no_number(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        for value in ("text", True, None, [1]):
            engine.write(Put(LEDGER, pk, "a", {"n": value}))
            with pytest.raises(StoreError):
                engine.write(Add(LEDGER, pk, "a", {"n": 1}))
            with pytest.raises(StoreError):
                engine.transact([Put(LEDGER, pk, "b", {}), Add(LEDGER, pk, "a", {"n": 1})])
        assert engine.get(LEDGER, pk, "a") == {"n": [1]}
        assert engine.get(LEDGER, pk, "b") is None

    def test_tables_and_partitions_are_apart(self, engine: Engine, fresh: Fresh) -> None:
        pk, other = fresh(), fresh()
        for number, table in enumerate(Table):
            engine.write(Put(table, pk, "a", {"n": number}))
        engine.write(Put(LEDGER, other, "a", {"n": 99}))
        assert [engine.get(table, pk, "a") for table in Table] == [
            {"n": number} for number in range(len(Table))
        ]

    @pytest.mark.usefixtures("faithful")  # moto's counters are not safe among threads
    def test_counters_lose_nothing_under_concurrency(self, engine: Engine, fresh: Fresh) -> None:
        pk, threads, times = fresh(), 6, 10

        def count(_: int) -> list[int]:
            return [_number(engine.write(Add(LEDGER, pk, "n", {"n": 1}))) for _ in range(times)]

        with ThreadPoolExecutor(threads) as pool:
            seen = [number for part in pool.map(count, range(threads)) for number in part]
        assert sorted(seen) == list(range(1, threads * times + 1))
        assert engine.get(LEDGER, pk, "n") == {"n": threads * times}

    def test_one_of_many_wins_an_absent_place(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()

        def claim(number: int) -> bool:
            try:
                engine.write(Put(LEDGER, pk, "a", {"n": number}, Absent()))
            except ConditionFailed:
                return False
            return True

        with ThreadPoolExecutor(6) as pool:
            won = list(pool.map(claim, range(12)))
        assert won.count(True) == 1
        assert engine.get(LEDGER, pk, "a") == {"n": won.index(True)}


def _number(item: Item | None) -> int:
    assert item is not None
    number: int = item["n"]
    return number


STANDING: list[Item | None] = [
    None,
    {},
    {"n": 5},
    {"n": 5, "s": "x"},
    {"s": "5", "b": True},
    {"l": [1, {"a": b"x"}]},
]
HOLDING: list[tuple[Condition, set[int]]] = [
    (Absent(), {0}),
    (Equals("n", 5), {2, 3}),
    (Equals("n", 6), set()),
    (Equals("b", True), {4}),
    (Equals("s", "x"), {3}),
    (Equals("s", "5"), {4}),
    (Equals("l", [1, {"a": b"x"}]), {5}),
    (LessThan("n", 5), {0, 1, 4, 5}),
    (LessThan("n", 6), {0, 1, 2, 3, 4, 5}),
    (LessThan("n", 1), {0, 1, 4, 5}),
    (LessThan("n", 0), set()),  # what is not there counts as 0
    (AtLeast("n", 5), {2, 3}),
    (AtLeast("n", 6), set()),
    (AtLeast("n", -1), {2, 3}),
]
# Where a value is of another type than the condition's, which moto has its own ideas about.
MISTYPED_STANDING: list[Item | None] = [{"n": "5"}, {"n": None}, {"n": True}, {"n": [1]}]
MISTYPED_HOLDING: list[tuple[Condition, set[int]]] = [
    (Equals("n", 5), set()),
    (Equals("n", 1), set()),
    (Equals("n", None), {1}),
    (Equals("n", [True]), set()),
    (LessThan("n", 6), set()),
    (AtLeast("n", 0), set()),
]


class TestConditions:
    @pytest.mark.parametrize("case", HOLDING, ids=lambda case: repr(case[0]))
    def test_mean_the_same_on_every_write(
        self, engine: Engine, fresh: Fresh, case: tuple[Condition, set[int]]
    ) -> None:
        condition, held = case
        for number, item in enumerate(STANDING):
            self._try(engine, fresh(), condition, item, number in held)

    @pytest.mark.usefixtures("faithful")
    @pytest.mark.parametrize("case", MISTYPED_HOLDING, ids=lambda case: repr(case[0]))
    def test_conditions_tell_types_apart(
        self, engine: Engine, fresh: Fresh, case: tuple[Condition, set[int]]
    ) -> None:
        condition, held = case
        for number, item in enumerate(MISTYPED_STANDING):
            self._try(engine, fresh(), condition, item, number in held)

    def _try(
        self, engine: Engine, pk: str, condition: Condition, item: Item | None, holds: bool
    ) -> None:
        writes = [
            Put(LEDGER, pk, "put", {"new": 1}, condition),
            Delete(LEDGER, pk, "delete", condition),
            Add(LEDGER, pk, "add", {"count": 1}, {}, condition),
        ]
        self._lay(engine, pk, item)
        for write in writes:
            if holds:
                engine.write(write)
            else:
                with pytest.raises(ConditionFailed) as failed:
                    engine.write(write)
                assert failed.value.current == item
        self._lay(engine, pk, item)
        checked = [*writes, Check(LEDGER, pk, "check", condition)]
        if holds:
            engine.transact(checked)
        else:
            with pytest.raises(TransactionCancelled) as cancelled:
                engine.transact(checked)
            assert list(cancelled.value.failed) == [True] * 4
            assert list(cancelled.value.current) == [item] * 4
        after: dict[str, Item | None] = {"put": item, "delete": item, "add": item, "check": item}
        if holds:
            after |= {"put": {"new": 1}, "delete": None, "add": {**(item or {}), "count": 1}}
        standing = engine.get_many(LEDGER, [(pk, sk) for sk in after])
        assert {sk: standing.get((pk, sk)) for sk in after} == after
        self._lay(engine, pk, None)

    def _lay(self, engine: Engine, pk: str, item: Item | None) -> None:
        places = ("put", "delete", "add", "check")
        engine.write_batch(
            [Delete(LEDGER, pk, sk) if item is None else Put(LEDGER, pk, sk, item) for sk in places]
        )


class TestTransactions:
    def test_a_transaction_writes_all_or_nothing(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write(Put(EVENTS, pk, "old", {"id": "1"}))
        engine.write(Put(LEDGER, pk, "balance", {"n": 10}))
        writes = [
            Put(EVENTS, pk, "new", {"id": b"2"}, Absent()),
            Delete(EVENTS, pk, "old", Equals("id", "1")),
            Add(LEDGER, pk, "balance", {"n": 5}, {"by": "x"}, LessThan("n", 11)),
            Check(LEDGER, pk, "closed", Absent()),
        ]
        engine.transact(writes)
        assert engine.get(EVENTS, pk, "new") == {"id": b"2"}
        assert engine.get(EVENTS, pk, "old") is None
        assert engine.get(LEDGER, pk, "balance") == {"n": 15, "by": "x"}

        with pytest.raises(TransactionCancelled) as cancelled:
            engine.transact([*writes, Put(LEDGER, pk, "more", {})])
        assert list(cancelled.value.failed) == [True, True, True, False, False]
        assert list(cancelled.value.current) == [
            {"id": b"2"},
            None,
            {"n": 15, "by": "x"},
            None,
            None,
        ]
        assert engine.get(LEDGER, pk, "balance") == {"n": 15, "by": "x"}
        assert engine.get(LEDGER, pk, "more") is None

    def test_an_empty_transaction_succeeds(self, engine: Engine) -> None:
        engine.transact([])

    def test_of_a_hundred_and_no_more(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        most = engine.max_transaction
        assert most >= 100
        puts = [Put(Table.CHANGES, pk, f"{n:04}", {"n": n}, Absent()) for n in range(most + 1)]
        with pytest.raises(ValueError, match=f"at most {most} "):
            engine.transact(puts)
        engine.transact(puts[:100])
        assert len(list(read_all(engine, Query(Table.CHANGES, pk)))) == 100

    def test_of_four_megabytes_and_no_more(self, engine: Engine, fresh: Fresh) -> None:
        large = {"text": "x" * 380 * 1024}
        with pytest.raises(ValueError, match="bytes"):
            engine.transact([Put(LEDGER, fresh(), "a", large) for _ in range(12)])

    def test_name_each_item_once(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        with pytest.raises(ValueError, match="once"):
            engine.transact([Put(LEDGER, pk, "a", {}), Check(LEDGER, pk, "a", Absent())])
        engine.transact([Put(LEDGER, pk, "a", {}), Put(EVENTS, pk, "a", {})])

    def test_keep_to_durable_or_volatile_tables(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        with pytest.raises(ValueError, match="durable or only volatile"):
            engine.transact([Put(LEDGER, pk, "a", {}), Put(SESSIONS, pk, "a", {})])
        engine.transact([Put(SESSIONS, pk, "a", {}), Put(SESSIONS, pk, "b", {})])

    def test_move_money_without_loss_under_concurrency(self, engine: Engine, fresh: Fresh) -> None:
        pk, moves = fresh(), 10
        engine.transact([Put(LEDGER, pk, name, {"n": 0}) for name in ("from", "to")])

        def move(number: int) -> None:
            entry = Put(LEDGER, pk, f"entry{number}", {}, Absent())
            give, take = Add(LEDGER, pk, "from", {"n": -1}), Add(LEDGER, pk, "to", {"n": 1})
            engine.transact([give, take, entry])

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(move, range(moves)))
        assert engine.get(LEDGER, pk, "from") == {"n": -moves}
        assert engine.get(LEDGER, pk, "to") == {"n": moves}
        assert len(engine.query(Query(LEDGER, pk)).rows) == moves + 2


class TestBatches:
    def test_a_batch_may_be_larger_than_one_request(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write_batch([Put(POSTINGS, pk, f"{n:03}", {"n": n}) for n in range(130)])
        engine.write_batch([Delete(POSTINGS, pk, f"{n:03}") for n in range(0, 130, 2)])
        found = engine.get_many(POSTINGS, [(pk, f"{n:03}") for n in range(250)])
        assert found == {(pk, f"{n:03}"): {"n": n} for n in range(1, 130, 2)}

    @pytest.mark.usefixtures("faithful")
    def test_a_batch_may_name_several_tables(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write_batch([Put(table, pk, "a", {"n": 1}) for table in Table])
        assert [engine.get(table, pk, "a") for table in Table] == [{"n": 1}] * len(Table)

    def test_the_last_write_of_an_item_wins(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write_batch(
            [
                Put(POSTINGS, pk, "a", {"n": 1}),
                Put(POSTINGS, pk, "b", {"n": 1}),
                Delete(POSTINGS, pk, "a"),
                Put(POSTINGS, pk, "b", {"n": 2}),
            ]
        )
        assert engine.get(POSTINGS, pk, "a") is None
        assert engine.get(POSTINGS, pk, "b") == {"n": 2}

    def test_keys_are_read_once(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write(Put(POSTINGS, pk, "a", {"n": 1}))
        keys = iter([(pk, "a")] * 150 + [(pk, "b")])
        assert engine.get_many(POSTINGS, keys) == {(pk, "a"): {"n": 1}}

    def test_empty_batches_and_reads_succeed(self, engine: Engine) -> None:
        engine.write_batch([])
        assert engine.get_many(POSTINGS, []) == {}
        assert engine.query_many([]) == []
        assert engine.together() == []

    def test_deferred_ones_are_there_after_the_next_write(
        self, engine: Engine, fresh: Fresh
    ) -> None:
        pk = fresh()
        engine.write_batch([Put(POSTINGS, pk, str(n), {}) for n in range(3)], deferred=True)
        engine.write(Put(EVENTS, pk, "event", {}))
        assert keys_of(engine.query(Query(POSTINGS, pk))) == ["0", "1", "2"]


class TestExpiry:
    def test_readers_do_not_see_what_is_past_its_time(
        self, engine: Engine, fresh: Fresh, clock: Clock
    ) -> None:
        pk = fresh()
        for sk, expires in (("a", START + 10), ("b", START + 20)):
            engine.write(Put(SESSIONS, pk, sk, {EXPIRES: expires}))
        engine.write(Put(SESSIONS, pk, "c", {}))
        assert keys_of(engine.query(Query(SESSIONS, pk))) == ["a", "b", "c"]
        clock.now = START + 10
        assert engine.get(SESSIONS, pk, "a") is None
        assert engine.get(SESSIONS, pk, "b") is not None
        assert engine.get_many(SESSIONS, [(pk, sk) for sk in "abc"]).keys() == {
            (pk, "b"),
            (pk, "c"),
        }
        assert keys_of(engine.query(Query(SESSIONS, pk))) == ["b", "c"]

    def test_a_page_of_expired_items_goes_on(
        self, engine: Engine, fresh: Fresh, clock: Clock
    ) -> None:
        pk = fresh()
        engine.write_batch([Put(SESSIONS, pk, f"a{n}", {EXPIRES: START}) for n in range(4)])
        engine.write(Put(SESSIONS, pk, "b", {}))
        page = engine.query(Query(SESSIONS, pk, limit=2))
        assert (list(page.rows), page.after) == ([], "a1")
        assert [row.sk for row in read_all(engine, Query(SESSIONS, pk, limit=2))] == ["b"]

    def test_conditions_see_the_item_until_it_is_purged(
        self, engine: Engine, fresh: Fresh, clock: Clock
    ) -> None:
        pk = fresh()
        engine.write(Put(SESSIONS, pk, "a", {"n": 1, EXPIRES: START - 1}))
        with pytest.raises(ConditionFailed) as failed:
            engine.write(Put(SESSIONS, pk, "a", {}, Absent()))
        assert failed.value.current == {"n": 1, EXPIRES: START - 1}
        assert engine.write(Add(SESSIONS, pk, "a", {"n": 1}, {EXPIRES: START + 1})) == {
            "n": 2,
            EXPIRES: START + 1,
        }
        assert engine.get(SESSIONS, pk, "a") == {"n": 2, EXPIRES: START + 1}


sort_keys = st.text(
    st.characters(codec="utf-8") | st.sampled_from("ab\x00\uffff\U00010000"), min_size=1, max_size=4
)
bounds = st.none() | sort_keys | st.just("")


class TestQueries:
    def test_order_is_that_of_utf8_bytes(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        # UTF-16 would sort the last two the other way round.
        ordered = ["A", "a", "a\x00", "aa", "é", "\uffff", "\U00010000"]
        engine.write_batch([Put(POSTINGS, pk, sk, {}) for sk in reversed(ordered)])
        assert keys_of(engine.query(Query(POSTINGS, pk))) == ordered
        assert keys_of(engine.query(Query(POSTINGS, pk, backward=True))) == ordered[::-1]

    def test_bounds_are_inclusive(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write_batch([Put(POSTINGS, pk, sk, {"sk ": sk}) for sk in "abcde"])
        assert keys_of(engine.query(Query(POSTINGS, pk, "b", "d"))) == ["b", "c", "d"]
        assert keys_of(engine.query(Query(POSTINGS, pk, low="d"))) == ["d", "e"]
        assert keys_of(engine.query(Query(POSTINGS, pk, high="b"))) == ["a", "b"]
        assert keys_of(engine.query(Query(POSTINGS, pk, "b", "d", True, 2))) == ["d", "c"]
        assert keys_of(engine.query(Query(POSTINGS, pk, "d", "b"))) == []
        assert keys_of(engine.query(Query(POSTINGS, fresh()))) == []

    def test_after_goes_on_behind_an_item_that_is_gone(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write_batch([Put(POSTINGS, pk, sk, {}) for sk in "abcde"])
        page = engine.query(Query(POSTINGS, pk, limit=3))
        assert page.after == "c"
        engine.write(Delete(POSTINGS, pk, "c"))
        assert keys_of(engine.query(Query(POSTINGS, pk, after=page.after))) == ["d", "e"]

    def test_a_partition_larger_than_a_page(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        for n in range(4):
            engine.write(Put(POSTINGS, pk, str(n), {"text": "x" * 390_000}))
        assert [row.sk for row in read_all(engine, Query(POSTINGS, pk))] == list("0123")
        backward = Query(POSTINGS, pk, backward=True)
        assert [row.sk for row in read_all(engine, backward)] == list("3210")
        engine.write_batch([Delete(POSTINGS, pk, str(n)) for n in range(4)])

    def test_marked_items_side_by_side(self, engine: Engine, fresh: Fresh) -> None:
        """Bytes, large numbers and names that look like marks."""
        pks = [fresh() for _ in range(4)]
        item = {"b": b"\x00\xff", "n": 10**30, "$bytes": {"$int": "1"}, "t": 'a"$b', "l": ["$"]}
        engine.write_batch([Put(POSTINGS, pk, sk, item) for pk in pks for sk in ('"', "$")])

        for page in engine.query_many([Query(POSTINGS, pk) for pk in pks]):
            assert [(row.sk, row.item) for row in page.rows] == [('"', item), ("$", item)]
        keys = [(pk, sk) for pk in pks for sk in ('"', "$", "nothing")]
        assert engine.get_many(POSTINGS, keys) == {key: item for key in keys if key[1] != "nothing"}

    def test_queries_side_by_side_answer_in_their_order(self, engine: Engine, fresh: Fresh) -> None:
        pks = [fresh() for _ in range(20)]
        engine.write_batch([Put(POSTINGS, pk, "a", {"pk ": pk}) for pk in pks])
        pages = engine.query_many([Query(POSTINGS, pk) for pk in pks])
        assert [page.rows[0].item["pk "] for page in pages] == pks

    @settings(max_examples=40)
    @given(
        stored=st.sets(sort_keys, max_size=8),
        low=bounds,
        high=bounds,
        after=bounds,
        backward=st.booleans(),
        limit=st.none() | st.integers(1, 4),
    )
    def test_read_as_a_sorted_dict_would(
        self,
        engine: Engine,
        fresh: Fresh,
        stored: set[str],
        low: str | None,
        high: str | None,
        after: str | None,
        backward: bool,
        limit: int | None,
    ) -> None:
        pk = fresh()
        engine.write_batch([Put(POSTINGS, pk, sk, {"own": sk}) for sk in stored])
        query = Query(POSTINGS, pk, low, high, backward, limit, after)
        assert [(row.sk, row.item) for row in read_all(engine, query)] == [
            (sk, {"own": sk}) for sk in naive(stored, query)
        ]
        assert keys_of(engine.query(query)) == naive(stored, query)[:limit]
        others = [Query(POSTINGS, pk, limit=limit), query._replace(pk=f"{pk}-nothing"), query]
        pages = engine.query_many([query, *others])
        assert [(list(page.rows), page.after) for page in pages] == [
            (list(page.rows), page.after) for page in map(engine.query, [query, *others])
        ]


def naive(stored: set[str], query: Query) -> list[str]:
    def is_in(sk: str) -> bool:
        if query.after is not None and (sk >= query.after if query.backward else sk <= query.after):
            return False
        return (query.low or "") <= sk and (query.high is None or sk <= query.high)

    return sorted(filter(is_in, stored), key=str.encode, reverse=query.backward)


class TestTogether:
    def test_results_come_in_the_order_of_the_calls(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write_batch([Put(LEDGER, pk, str(n), {"n": n}) for n in range(40)])
        calls = [lambda sk=str(n): engine.get(LEDGER, pk, sk) for n in range(40)]
        assert engine.together(*calls) == [{"n": n} for n in range(40)]

    def test_nested_calls_come_to_an_end(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write(Put(LEDGER, pk, "a", {"n": 1}))

        def nested(depth: int) -> int:
            if depth == 0:
                return _number(engine.get(LEDGER, pk, "a"))
            return sum(engine.together(*[lambda: nested(depth - 1)] * 4))

        assert nested(3) == 4**3

    def test_the_error_of_one_call_is_raised(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        engine.write(Put(LEDGER, pk, "a", {}))
        with pytest.raises(ConditionFailed):
            engine.together(
                lambda: engine.get(LEDGER, pk, "a"),
                lambda: engine.write(Put(LEDGER, pk, "a", {}, Absent())),
                lambda: engine.get(LEDGER, pk, "a"),
            )

    def test_reads_see_writes_of_other_threads(self, engine: Engine, fresh: Fresh) -> None:
        pk = fresh()
        with ThreadPoolExecutor(1) as writer:
            for n in range(10):
                writer.submit(engine.write, Put(LEDGER, pk, f"{n}", {"n": n})).result()
                assert engine.get(LEDGER, pk, f"{n}") == {"n": n}
                assert len(engine.query(Query(LEDGER, pk)).rows) == n + 1
