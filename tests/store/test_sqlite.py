"""What only the SQLite engine does: group commit, the outbox, deferred batches, and staying right
across crashes."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from farthing.store import sqlite_checkpoint, sqlite_layout, sqlite_outbox
from farthing.store.changes import Arrival, ChangeLog
from farthing.store.events import EventStore
from farthing.store.memory import MemoryEngine
from farthing.store.postings import Lists
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from farthing.store.sqlite_items import encode_item
from farthing.store.sqlite_outbox import OutboxChange
from farthing.store.sqlite_transactions import Transaction
from farthing.store.table import (
    EXPIRES,
    Absent,
    Add,
    ConditionFailed,
    Delete,
    Equals,
    Put,
    Query,
    StoreError,
    Table,
    TransactionCancelled,
)
from tests.relay.world import made
from tests.store.conftest import START, Clock

EVENTS, CHANGES, POSTINGS = Table.EVENTS, Table.CHANGES, Table.POSTINGS
LEDGER, SESSIONS = Table.LEDGER, Table.SESSIONS


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def sqlite(directory: Path, clock: Clock) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(directory, clock=clock)
    yield engine
    engine.close(flush=False)


@pytest.fixture
def reopened(directory: Path, clock: Clock) -> Iterator[Callable[[], SqliteEngine]]:
    """Another engine on the same directory, as after a restart."""
    opened: list[SqliteEngine] = []

    def reopen() -> SqliteEngine:
        opened.append(SqliteEngine(directory, clock=clock))
        return opened[-1]

    yield reopen
    for engine in opened:
        engine.close()


class Commits:
    """Counts the commits of the durable file, and can hold the next one up."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._commit = engine._file._commit
        self.groups: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()
        engine._file._commit = self  # type: ignore[method-assign, assignment]

    def __call__(self, group: list[object]) -> bool:
        self.began.set()
        assert self.gate.wait(10)
        self.groups.append(len(group))
        return self._commit(group)  # type: ignore[arg-type]


def queued(engine: SqliteEngine, number: int) -> bool:
    return len(engine._file._pending) >= number


def wait_for(condition: Callable[[], bool]) -> None:
    ticks = threading.Event()
    for _ in range(10_000):
        if condition():
            return
        ticks.wait(0.001)
    pytest.fail("it did not come to that")


class TestGroupCommit:
    def test_all_who_wait_share_the_next_commit(self, sqlite: SqliteEngine) -> None:
        commits = Commits(sqlite)
        commits.gate.clear()
        with ThreadPoolExecutor(9) as pool:
            first = pool.submit(sqlite.write, Add(LEDGER, "p", "n", {"n": 1}))
            assert commits.began.wait(10)
            others = [pool.submit(sqlite.write, Add(LEDGER, "p", "n", {"n": 1})) for _ in range(8)]
            wait_for(lambda: queued(sqlite, 8))
            commits.gate.set()
            results = [future.result()["n"] for future in [first, *others]]  # type: ignore[index]
        assert commits.groups == [1, 8]
        assert sorted(results) == list(range(1, 10))

    def test_many_writers_lose_nothing(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        commits, threads, times = Commits(sqlite), 16, 50

        def work(worker: int) -> None:
            for n in range(times):
                sqlite.write(Put(EVENTS, f"w{worker}", f"{n:03}", {"n": n}, Absent()))
                sqlite.transact(
                    [
                        Add(LEDGER, "total", "n", {"n": 1}),
                        Put(LEDGER, f"w{worker}", f"{n:03}", {}, Absent()),
                    ]
                )

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        writes = 2 * threads * times
        assert sum(commits.groups) == writes
        assert len(commits.groups) < writes
        sqlite.close(flush=False)
        again = reopened()
        assert again.get(LEDGER, "total", "n") == {"n": threads * times}
        for worker in range(threads):
            assert len(again.query(Query(EVENTS, f"w{worker}")).rows) == times
        assert len(again.stream_after(0, 10_000)) == threads * times

    def test_units_of_a_group_see_each_other_in_order(self, sqlite: SqliteEngine) -> None:
        commits = Commits(sqlite)
        commits.gate.clear()
        with ThreadPoolExecutor(8) as pool:
            blocker = pool.submit(sqlite.write, Put(LEDGER, "p", "other", {}))
            assert commits.began.wait(10)
            steps = [
                pool.submit(sqlite.write, write)
                for number, write in enumerate(
                    [
                        Put(EVENTS, "p", "a", {"n": 1}, Absent()),
                        Put(EVENTS, "p", "a", {"n": 2}, Absent()),
                        Put(EVENTS, "p", "a", {"n": 3}, Equals("n", 1)),
                        Add(EVENTS, "p", "a", {"n": 1}),
                        Delete(EVENTS, "p", "a", Equals("n", 4)),
                    ],
                    start=1,
                )
                if wait_for(lambda number=number: queued(sqlite, number - 1)) is None
            ]
            wait_for(lambda: queued(sqlite, 5))
            commits.gate.set()
            blocker.result()
            assert steps[0].result() is None
            with pytest.raises(ConditionFailed) as failed:
                steps[1].result()
            assert failed.value.current == {"n": 1}
            assert steps[2].result() == {"n": 1}
            assert steps[3].result() == {"n": 4}
            assert steps[4].result() == {"n": 4}
        assert commits.groups == [1, 5]
        assert sqlite.get(EVENTS, "p", "a") is None
        assert [(change.old, change.new) for change in sqlite.stream_after(0, 10)] == [
            (None, {"n": 1}),
            ({"n": 1}, {"n": 3}),
            ({"n": 3}, {"n": 4}),
            ({"n": 4}, None),
        ]

    def test_a_bad_write_hurts_nobody_else(self, sqlite: SqliteEngine) -> None:
        sqlite.write(Put(LEDGER, "p", "text", {"n": "text"}))
        commits = Commits(sqlite)
        commits.gate.clear()
        with ThreadPoolExecutor(4) as pool:
            blocker = pool.submit(sqlite.write, Put(LEDGER, "p", "other", {}))
            assert commits.began.wait(10)
            bad = pool.submit(sqlite.write, Add(LEDGER, "p", "text", {"n": 1}))
            cancelled = pool.submit(sqlite.transact, [Put(LEDGER, "p", "text", {}, Absent())])
            good = pool.submit(sqlite.write, Put(LEDGER, "p", "good", {}))
            wait_for(lambda: queued(sqlite, 3))
            commits.gate.set()
            blocker.result()
            good.result()
            with pytest.raises(StoreError):
                bad.result()
            with pytest.raises(TransactionCancelled):
                cancelled.result()
        assert commits.groups == [1, 3]
        assert sqlite.get(LEDGER, "p", "good") == {}

    def test_a_failed_commit_fails_all_of_the_group_and_no_more(
        self, sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sqlite.write(Put(LEDGER, "p", "a", {"n": 1}))
        with monkeypatch.context() as patch:

            def fail(group: object) -> bool:
                raise sqlite3.OperationalError("database or disk is full")

            patch.setattr(sqlite._file, "_commit", fail)
            with pytest.raises(StoreError, match="full"):
                sqlite.write(Put(LEDGER, "p", "a", {"n": 2}, Absent()))
        assert sqlite.write(Put(LEDGER, "p", "a", {"n": 3})) == {"n": 1}

    def test_an_interrupted_leader_leaves_the_lead(
        self, sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:

            def interrupt(group: object) -> bool:
                raise KeyboardInterrupt

            patch.setattr(sqlite._file, "_commit", interrupt)
            with pytest.raises(KeyboardInterrupt):
                sqlite.write(Put(LEDGER, "p", "a", {}))
        sqlite.write(Put(LEDGER, "p", "a", {"n": 1}))
        assert sqlite.get(LEDGER, "p", "a") == {"n": 1}


class TestDurability:
    def test_what_was_acknowledged_outlives_a_crash(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        sqlite.write(Put(LEDGER, "p", "a", {"b": b"x"}))
        sqlite.transact([Put(EVENTS, "p", "a", {}), Add(LEDGER, "p", "n", {"n": 2**65})])
        sqlite.write_batch([Put(POSTINGS, "p", "a", {})])
        sqlite.close(flush=False)
        again = reopened()
        assert again.get(LEDGER, "p", "a") == {"b": b"x"}
        assert again.get(LEDGER, "p", "n") == {"n": 2**65}
        assert again.get(EVENTS, "p", "a") == {}
        assert again.get(POSTINGS, "p", "a") == {}

    def test_deferred_batches_ride_with_the_next_write(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        commits = Commits(sqlite)
        sqlite.write_batch([Put(POSTINGS, "p", "a", {})], deferred=True)
        assert commits.groups == []
        assert sqlite.get(POSTINGS, "p", "a") is None
        sqlite.write(Put(EVENTS, "p", "a", {}))
        assert commits.groups == [2]
        sqlite.close(flush=False)
        assert reopened().get(POSTINGS, "p", "a") == {}

    def test_a_crash_loses_what_is_deferred_and_no_more(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        sqlite.write(Put(EVENTS, "p", "a", {}))
        sqlite.write_batch([Put(POSTINGS, "p", "b", {})], deferred=True)
        sqlite.close(flush=False)
        again = reopened()
        assert again.get(EVENTS, "p", "a") == {}
        assert again.get(POSTINGS, "p", "b") is None

    def test_closing_keeps_what_is_deferred(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        sqlite.write_batch([Put(POSTINGS, "p", "b", {})], deferred=True)
        sqlite.close()
        assert reopened().get(POSTINGS, "p", "b") == {}

    def test_a_deferred_item_is_file_as_it_was_given(self, sqlite: SqliteEngine) -> None:
        item = {"tags": ["a"]}
        sqlite.write_batch([Put(POSTINGS, "p", "a", item)], deferred=True)
        item["tags"].append("b")
        sqlite.write(Put(EVENTS, "p", "a", {}))
        assert sqlite.get(POSTINGS, "p", "a") == {"tags": ["a"]}

    def test_sessions_end_with_the_process(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        sqlite.write(Put(SESSIONS, "p", "a", {}))
        sqlite.close()
        assert reopened().get(SESSIONS, "p", "a") is None

    def test_a_file_whose_tables_have_the_older_layout(
        self, directory: Path, reopened: Callable[[], SqliteEngine]
    ) -> None:
        directory.mkdir()
        with closing(sqlite3.connect(directory / "farthing.db")) as older:
            for table in (EVENTS, LEDGER):
                older.execute(
                    f"CREATE TABLE {table} (pk TEXT NOT NULL, sk TEXT NOT NULL, item BLOB NOT NULL,"
                    " expires INTEGER, PRIMARY KEY (pk, sk)) WITHOUT ROWID"
                )
                older.execute(f"INSERT INTO {table} VALUES ('p', 'a', '{{\"n\":1}}', NULL)")
            older.commit()
        engine = reopened()
        for table in (EVENTS, LEDGER):
            engine.write(Put(table, "p", "a", {"n": 2}, Equals("n", 1)))
            engine.write(Put(table, "p", "b", {"n": 3}))
            rows = engine.query(Query(table, "p")).rows
            assert [(row.sk, row.item) for row in rows] == [("a", {"n": 2}), ("b", {"n": 3})]

    def test_commits_wait_for_the_disk(self, sqlite: SqliteEngine) -> None:
        pragma = sqlite._file._writer.execute
        assert pragma("PRAGMA synchronous").fetchone() == (2,)
        assert pragma("PRAGMA journal_mode").fetchone() == ("wal",)
        assert pragma("PRAGMA auto_vacuum").fetchone() == (2,)


class TestOutbox:
    def test_changes_come_in_the_order_of_commits(self, sqlite: SqliteEngine) -> None:
        sqlite.write(Put(EVENTS, "p", "a", {"n": 1}))
        sqlite.transact([Put(CHANGES, "log#0", "1", {"b": b"x"}), Delete(EVENTS, "p", "a")])
        sqlite.write_batch([Put(EVENTS, "p", "b", {}), Put(POSTINGS, "p", "b", {})])
        sqlite.write(Delete(EVENTS, "p", "b"))
        assert sqlite.stream_after(0, 10) == [
            OutboxChange(1, EVENTS, "p", "a", None, {"n": 1}),
            OutboxChange(2, CHANGES, "log#0", "1", None, {"b": b"x"}),
            OutboxChange(3, EVENTS, "p", "a", {"n": 1}, None),
            OutboxChange(4, EVENTS, "p", "b", None, {}),
            OutboxChange(5, EVENTS, "p", "b", {}, None),
        ]
        assert [change.sequence for change in sqlite.stream_after(2, 2)] == [3, 4]

    def test_what_memory_has_is_what_the_file_has(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        event = made()
        EventStore(sqlite, NOSTR).save(event)
        sqlite.write_batch([Put(EVENTS, "p", "a", {"tuple": (1, 2), "b": b"x"})])
        sqlite.write(Put(EVENTS, "p", "a", {"n": 1}))
        from_file = reopened().stream_after(0, 10)
        assert len(sqlite._file.recent.after(0, 10)) == len(from_file) == 3
        assert sqlite.stream_after(0, 10) == from_file
        assert sqlite.stream_after(1, 1) == from_file[1:2]

    def test_what_another_process_writes_comes_in_its_place(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        other = reopened()
        for name, engine in enumerate((sqlite, sqlite, other, sqlite, other)):
            engine.write(Put(EVENTS, "p", str(name), {}))
        seen, at = [], 0
        while changes := sqlite.stream_after(at, 2):
            seen += [change.sk for change in changes]
            at = changes[-1].sequence
        assert seen == ["0", "1", "2", "3", "4"]
        assert [change.sk for change in sqlite.stream_after(0, 10)] == seen
        assert [change.sk for change in sqlite.stream_after(3, 10)] == seen[3:]

    def test_memory_keeps_no_more_than_it_may(
        self, sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_outbox, "_MOST_CHANGES", 3)
        for n in range(5):
            sqlite.write(Put(EVENTS, "p", str(n), {}))
        assert sqlite._file.recent.after(0, 10) == []
        assert [change.sk for change in sqlite._file.recent.after(2, 10)] == ["2", "3", "4"]
        assert [change.sk for change in sqlite.stream_after(0, 10)] == list("01234")
        monkeypatch.setattr(sqlite_outbox, "_MOST_BYTES", 1)
        sqlite.write(Put(EVENTS, "p", "5", {}))
        assert sqlite._file.recent.after(5, 10) == []

    def test_what_is_not_committed_is_not_streamed(self, sqlite: SqliteEngine) -> None:
        def fail(connection: sqlite3.Connection) -> None:
            raise sqlite3.OperationalError("disk full")

        sqlite._file.defer(Transaction(upkeep=fail))
        with pytest.raises(StoreError):
            sqlite.write(Put(EVENTS, "p", "a", {}))
        assert sqlite.stream_after(0, 10) == []

    def test_a_write_that_changes_nothing_leaves_no_record(self, sqlite: SqliteEngine) -> None:
        sqlite.write(Put(EVENTS, "p", "a", {"n": 1, "m": 2}))
        sqlite.write(Put(EVENTS, "p", "a", {"m": 2, "n": 1}))
        sqlite.write(Delete(EVENTS, "p", "nothing"))
        with pytest.raises(ConditionFailed):
            sqlite.write(Put(EVENTS, "p", "a", {}, Absent()))
        assert len(sqlite.stream_after(0, 10)) == 1
        sqlite.write(Put(EVENTS, "p", "a", {"m": 2, "n": True}))
        assert len(sqlite.stream_after(0, 10)) == 2

    def test_only_streamed_tables_call_back(self, sqlite: SqliteEngine) -> None:
        calls: list[None] = []
        sqlite.on_change(lambda: calls.append(None))
        sqlite.write(Put(LEDGER, "p", "a", {}))
        assert calls == []
        sqlite.write(Put(EVENTS, "p", "a", {}))
        assert calls == [None]

    def test_positions_of_consumers_survive_a_restart(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        for n in range(5):
            sqlite.write(Put(EVENTS, "p", str(n), {}))
        assert sqlite.stream_position("fanout") == 0
        sqlite.stream_advance({"fanout": 3})
        sqlite.close()
        again = reopened()
        assert again.stream_position("fanout") == 3
        assert [change.sequence for change in again.stream_after(0, 10)] == [4, 5]

    def test_after_a_restart_a_consumer_that_is_behind_gets_its_changes(
        self, sqlite: SqliteEngine, reopened: Callable[[], SqliteEngine]
    ) -> None:
        """Even if one that has handled all of them was the first to ask."""
        for n in range(3):
            sqlite.write(Put(EVENTS, "p", str(n), {}))
        sqlite.close()
        again = reopened()
        assert again.stream_after(3, 10) == []
        assert [change.sk for change in again.stream_after(1, 10)] == ["1", "2"]

    def test_nothing_is_forgotten_before_all_have_seen_it(self, sqlite: SqliteEngine) -> None:
        for n in range(5):
            sqlite.write(Put(EVENTS, "p", str(n), {}))
        for consumer in ("fanout", "sequencer"):
            assert sqlite.stream_position(consumer) == 0
        sqlite.stream_advance({"fanout": 4})
        sqlite.write(Put(LEDGER, "p", "a", {}))
        assert len(sqlite.stream_after(0, 10)) == 5
        sqlite.stream_advance({"sequencer": 2})
        sqlite.write(Put(LEDGER, "p", "a", {}))
        assert [change.sequence for change in sqlite.stream_after(0, 10)] == [3, 4, 5]

    def test_numbers_are_not_used_again(self, sqlite: SqliteEngine) -> None:
        sqlite.write(Put(EVENTS, "p", "a", {}))
        sqlite.stream_advance({"fanout": 1})
        sqlite.write(Put(LEDGER, "p", "a", {}))
        sqlite.write(Put(EVENTS, "p", "b", {}))
        assert [change.sequence for change in sqlite.stream_after(0, 10)] == [2]


class TestExpiry:
    def test_purging_deletes_what_is_past_its_time(
        self, sqlite: SqliteEngine, clock: Clock
    ) -> None:
        for table in (EVENTS, SESSIONS):
            for n in range(3):
                sqlite.write(Put(table, "p", str(n), {EXPIRES: START + n}))
            sqlite.write(Put(table, "p", "kept", {}))
        clock.now = START + 1
        assert sqlite.purge_expired() == 4
        assert sqlite.purge_expired() == 0
        clock.now = START
        assert [row.sk for row in sqlite.query(Query(SESSIONS, "p")).rows] == ["2", "kept"]
        gone = [change for change in sqlite.stream_after(0, 10) if change.new is None]
        assert [(change.sk, change.old) for change in gone] == [
            ("0", {EXPIRES: START}),
            ("1", {EXPIRES: START + 1}),
        ]

    def test_purging_spares_what_was_given_more_time(
        self, sqlite: SqliteEngine, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sqlite.write(Put(LEDGER, "p", "a", {EXPIRES: START}))
        flush = sqlite._file.flush
        defer = sqlite._file.defer

        def renew_first(*units: object) -> None:
            monkeypatch.undo()
            sqlite.write(Put(LEDGER, "p", "a", {EXPIRES: START + 60}))
            defer(*units)  # type: ignore[arg-type]

        monkeypatch.setattr(sqlite._file, "defer", renew_first)
        assert sqlite.purge_expired() == 0
        flush()
        assert sqlite.get(LEDGER, "p", "a") == {EXPIRES: START + 60}


class TestSnapshot:
    def test_what_others_write_meanwhile_is_not_seen(self, sqlite: SqliteEngine) -> None:
        def read() -> list[object]:
            return [
                sqlite.get(Table.LEDGER, "a", "1"),
                sqlite.get_many(Table.LEDGER, [("a", "2")]),
                [row.sk for row in sqlite.query(Query(Table.LEDGER, "a")).rows],
            ]

        sqlite.write(Put(Table.LEDGER, "a", "1", {"n": 1}))
        with sqlite.snapshot():
            before = read()
            sqlite.write(Put(Table.LEDGER, "a", "1", {"n": 2}))
            sqlite.write(Put(Table.LEDGER, "a", "2", {}))
            assert read() == before == [{"n": 1}, {}, ["1"]]
        assert read() == [{"n": 2}, {("a", "2"): {}}, ["1", "2"]]

    def test_a_snapshot_shows_no_later_write(self, sqlite: SqliteEngine) -> None:
        with sqlite.snapshot():
            sqlite.write(Put(Table.LEDGER, "a", "1", {}))
            assert sqlite.get(Table.LEDGER, "a", "1") is None


def older_file(
    directory: Path, layout: int, rows: Iterable[tuple[Table, str, str, dict[str, Any]]]
) -> None:
    """A file as versions before the third layout have written it."""
    directory.mkdir(exist_ok=True)
    with closing(sqlite3.connect(directory / "farthing.db")) as file:
        file.execute("PRAGMA auto_vacuum = INCREMENTAL")
        file.execute("PRAGMA journal_mode = WAL")
        for table in (table for table in Table if table is not SESSIONS):
            kind = "" if table in (EVENTS, LEDGER) else " WITHOUT ROWID"
            file.execute(
                f"CREATE TABLE {table} (pk TEXT NOT NULL, sk TEXT NOT NULL, item BLOB NOT NULL,"
                f" expires INTEGER, PRIMARY KEY (pk, sk)){kind}"
            )
            file.execute(
                f"CREATE INDEX {table}_expires ON {table} (expires) WHERE expires IS NOT NULL"
            )
        for table, pk, sk, item in rows:
            row = pk, sk, encode_item(item), item.get(EXPIRES)
            file.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", row)
        file.execute(f"PRAGMA user_version = {layout}")
        file.commit()


class TestLayout:
    NARROW = tuple(f"{2**40 - 1 - number:010x}{number:064x}" for number in range(7))
    WIDE = tuple(f"{2**64 - 1 - number:016x}{number:064x}" for number in range(7))

    @pytest.mark.parametrize("done", [0, 3, 7])
    def test_postings_with_ten_digits_of_time(
        self, directory: Path, reopened, monkeypatch, done: int
    ) -> None:
        """Also in a file of which some was done already, when the process died."""
        monkeypatch.setattr(sqlite_layout, "_ROWS_AT_ONCE", 4)
        sort_keys = [*self.WIDE[:done], *self.NARROW[done:]]
        rows = [(POSTINGS, pk, sk, {"k": 1}) for pk in ("a#x", "z#1") for sk in sort_keys]
        older_file(directory, 0, [*rows, (EVENTS, "e", "e", {"j": "{}"})])

        engine = reopened()

        for pk in ("a#x", "z#0"):
            rows = engine.query(Query(POSTINGS, pk)).rows
            assert [row.sk for row in rows] == sorted(self.WIDE)
            assert all(row.item == {"k": 1} for row in rows)
        assert engine.get(EVENTS, "e", "e") == {"j": "{}"}

    def test_lists_that_were_spread_are_one(self, directory: Path, reopened) -> None:
        event = made(kind=7)
        keys = Lists(NOSTR, 8).keys(event) + Lists(NOSTR, 8).keys(made(kind=70))
        older_file(directory, 1, [(POSTINGS, pk, sk, {"k": 1}) for pk, sk in keys])

        again = reopened()

        for pk, sk in Lists(NOSTR, again.shards).keys(event):
            assert again.get(POSTINGS, pk, sk) == {"k": 1}, pk
        assert len(again.query(Query(POSTINGS, "z#0")).rows) == 2
        assert len(again.query(Query(POSTINGS, "k#7#0")).rows) == 1

    def everything(self) -> list[tuple[Table, str, str, dict[str, Any]]]:
        """What a relay has stored: events, postings, numbers, and what has no form of its own."""
        memory = MemoryEngine()
        store, log = EventStore(memory, NOSTR), ChangeLog(memory)
        events = [made(tags=[["t", str(number)]]) for number in range(30)]
        for event in [*events, made(kind=0), made(kind=10002, tags=[["t", '"$x"']])]:
            store.save(event)
        store.save(made(kind=1, tags=[["expiration", "99999999999"]]))
        store.remove(events[0].id)
        log.append(0, [Arrival(event.id, event.pubkey, event.kind) for event in events])
        memory.write(Put(LEDGER, "a", "b", {"n": 1}))
        memory.write(Put(EVENTS, "x" + "0" * 64, "xe", {"j": "{}", "n": b"1"}))
        return [
            (table, pk, sk, dict(item))
            for table in Table
            if table is not SESSIONS
            for (its_table, pk), partition in memory._partitions.items()
            if its_table is table
            for sk, item in partition.items.items()
        ]

    def test_rows_of_an_older_file_are_packed(self, directory: Path, reopened) -> None:
        rows = self.everything()
        older_file(directory, 2, rows)

        engine = reopened()

        for table, pk, sk, item in rows:
            assert engine.get(table, pk, sk) == item, (table, pk)
            assert engine.get_many(table, [(pk, sk)]) == {(pk, sk): item}
            assert (sk, item) in engine.query(Query(table, pk)).rows
        with closing(sqlite3.connect(directory / "farthing.db")) as file:
            counts = {
                table: file.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in (EVENTS, POSTINGS, Table.CHANGES)
            }
            assert counts == {table: sum(row[0] is table for row in rows) for table in counts}
            plain = "SELECT count(*) FROM postings WHERE typeof(pk) = 'text'"
            assert file.execute(plain).fetchone() == (0,)
            older = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'older%'"
            assert file.execute(older).fetchone() == (0,)

    @pytest.mark.parametrize("commits", range(1, 40, 6))
    def test_a_migration_that_was_killed_goes_on(self, directory: Path, commits: int) -> None:
        """After any of its commits: nothing is lost, nothing is there twice."""
        rows = self.everything()
        older_file(directory, 2, rows)
        code = (
            "import os, sys; from pathlib import Path\n"
            "from farthing.store import sqlite, sqlite_layout, sqlite_rows\n"
            "sqlite_layout._ROWS_AT_ONCE = 7\n"
            "put, left = sqlite_rows.put, [int(sys.argv[2])]\n"
            "def counted(*arguments):\n"
            "    put(*arguments)\n"
            "    left[0] -= 1\n"
            "    if not left[0]: os.kill(os.getpid(), 9)\n"
            "sqlite_rows.put = counted\n"
            "sqlite.SqliteEngine(Path(sys.argv[1]))\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code, str(directory), str(commits)],
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert ended.returncode in (0, -signal.SIGKILL)

        engine = SqliteEngine(directory)

        try:
            for table, pk, sk, item in rows:
                assert engine.get(table, pk, sk) == item
            assert all(
                len(engine.query(Query(POSTINGS, pk)).rows)
                == sum(row[0] is POSTINGS and row[1] == pk for row in rows)
                for pk in {row[1] for row in rows if row[0] is POSTINGS}
            )
        finally:
            engine.close()

    def test_a_migrated_file_has_todays_layout(
        self, directory: Path, clock: Clock, reopened
    ) -> None:
        reopened()
        with closing(sqlite3.connect(directory / "farthing.db")) as file:
            assert file.execute("PRAGMA user_version").fetchone() == (sqlite_layout.LAYOUT,)

    def test_a_file_of_a_later_version_is_left_alone(
        self, directory: Path, clock: Clock, reopened
    ) -> None:
        reopened()
        with closing(sqlite3.connect(directory / "farthing.db")) as file:
            file.execute("PRAGMA user_version = 99")

        with pytest.raises(sqlite_layout.NewerLayout, match="got layout 99"):
            reopened()


class TestPages:
    @pytest.mark.parametrize("backward", [False, True])
    def test_a_later_page_takes_no_more_steps_than_an_early_one(
        self, sqlite: SqliteEngine, backward: bool
    ) -> None:
        rows = [
            Put(POSTINGS, "list", f"{n:080x}", {"k": 1, "p": "a" * 64, "w": n}) for n in range(3000)
        ]
        for start in range(0, len(rows), 25):
            sqlite.write_batch(rows[start : start + 25], deferred=True)
        sqlite.flush()
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        sqlite._file.reader.set_progress_handler(count, 20)
        taken, after, found = [], None, 0
        while after is not None or not taken:
            steps = 0
            query = Query(
                POSTINGS, "list", low="0", high="f", limit=500, after=after, backward=backward
            )
            page = sqlite.query(query)
            taken.append(steps)
            after, found = page.after, found + len(page.rows)

        assert found == 3000
        assert max(taken) <= 1.2 * taken[0]


def test_no_statement_reads_a_whole_table(sqlite: SqliteEngine) -> None:
    ran: list[str] = []
    for connection in (sqlite._file._writer, sqlite._file.reader):
        connection.set_trace_callback(ran.append)

    events, keys = EventStore(sqlite, NOSTR), [("p", str(number)) for number in range(7)]
    for version in range(2):  # the second replaces the first
        event = made(kind=0, created_at=START + version, tags=[["t", "x"]])
        events.save(event)
    events.remove(event.id)
    for table in (EVENTS, CHANGES, POSTINGS, LEDGER):
        sqlite.write_batch([Put(table, *key, {}) for key in keys])
        sqlite.get_many(table, keys)
        sqlite.query_many([Query(table, "p", limit=number) for number in range(1, 4)])
        sqlite.write_batch([Delete(table, *key) for key in keys])

    reader, steps = sqlite._file.reader, []
    reader.set_trace_callback(None)
    for statement in ran:
        if statement.startswith(("DELETE", "INSERT", "SELECT", "WITH")):
            steps += [row[3] for row in reader.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert len(steps) > 50
    assert [
        step for step in steps if step.startswith(tuple(f"SCAN {each}" for each in Table))
    ] == []


class TestCheckpoints:
    """The log is copied beside the commits, and does not grow for ever."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite_checkpoint, "_FULL", 50)
        monkeypatch.setattr(sqlite_checkpoint, "_FEW", 20)

    @pytest.fixture
    def copied_by(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
        """The threads that have copied, and how many pages each has left."""
        noted: list[tuple[str, int]] = []
        copy = sqlite_checkpoint.copy_log

        def noting(connection: sqlite3.Connection) -> int:
            left = copy(connection)
            noted.append((threading.current_thread().name, left))
            return left

        monkeypatch.setattr(sqlite_checkpoint, "copy_log", noting)
        return noted

    def write_until(self, engine: SqliteEngine, done: Callable[[], bool]) -> int:
        for number in range(20_000):
            if done():
                return number
            engine.write(Put(LEDGER, "p", f"{number % 300:03}", {"n": number, "t": "x" * 500}))
        pytest.fail("this never came about")

    def test_another_thread_copies_and_a_commit_only_what_is_left(
        self, sqlite: SqliteEngine, copied_by: list[tuple[str, int]]
    ) -> None:
        me = threading.current_thread().name
        self.write_until(sqlite, lambda: (me, 0) in copied_by)

        first = [name for name, _ in copied_by].index(me)
        assert first > 0
        assert copied_by[first - 1][0] == "checkpoints"
        assert copied_by[first - 1][1] <= 20

    def test_the_log_begins_anew(
        self, sqlite: SqliteEngine, directory: Path, copied_by: list[tuple[str, int]]
    ) -> None:
        me = threading.current_thread().name
        self.write_until(sqlite, lambda: copied_by.count((me, 0)) >= 3)
        size = (directory / "farthing.db-wal").stat().st_size

        self.write_until(sqlite, lambda: copied_by.count((me, 0)) >= 12)

        assert (directory / "farthing.db-wal").stat().st_size <= 4 * size

    def test_its_space_is_given_back_once_commits_have_ended(
        self, sqlite: SqliteEngine, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_checkpoint, "_SMALL", 10)
        monkeypatch.setattr(sqlite_checkpoint, "_QUIET_SECONDS", 0.05)
        cut = threading.Event()
        cut_off = sqlite_checkpoint.cut_off_log

        def noting(connection: sqlite3.Connection) -> bool:
            done = cut_off(connection)
            if done:
                cut.set()
            return done

        monkeypatch.setattr(sqlite_checkpoint, "cut_off_log", noting)
        log = directory / "farthing.db-wal"

        for number in range(2):  # it grows, and is cut off, again
            cut.clear()
            for _ in range(15):
                sqlite.write(Put(LEDGER, "p", str(number), {"t": "x" * 5000}))
            assert cut.wait(10)
            assert log.stat().st_size == 0

        assert len(sqlite.query(Query(LEDGER, "p")).rows) == 2

    def test_a_reader_is_not_waited_for(self, sqlite: SqliteEngine, directory: Path) -> None:
        sqlite.write(Put(LEDGER, "p", "one", {"n": 1}))
        path = directory / "farthing.db"
        with (
            closing(sqlite3.connect(path)) as reader,
            closing(sqlite3.connect(path, timeout=0)) as mine,
        ):
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM ledger").fetchall()
            assert not sqlite_checkpoint.cut_off_log(mine)
            reader.execute("COMMIT")
            assert sqlite_checkpoint.cut_off_log(mine)

    def test_a_commit_does_it_all_where_the_thread_cannot(
        self, sqlite: SqliteEngine, monkeypatch, copied_by: list[tuple[str, int]]
    ) -> None:
        monkeypatch.setattr(sqlite_checkpoint, "_OVERFULL", 200)
        monkeypatch.setattr(sqlite_checkpoint.Checkpoints, "_copy", lambda *_: None)

        self.write_until(sqlite, lambda: bool(copied_by))

        assert copied_by == [(threading.current_thread().name, 0)]

    def test_nothing_is_lost_in_a_crash_while_it_goes_on(
        self, sqlite: SqliteEngine, reopened, copied_by: list[tuple[str, int]]
    ) -> None:
        written = self.write_until(sqlite, lambda: len(copied_by) > 3)
        sqlite.close(flush=False)

        rows = reopened().query(Query(LEDGER, "p")).rows

        assert max(row.item["n"] for row in rows) == written - 1

    def test_closing_while_it_copies_ends_the_thread(
        self, sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copying, is_closing = threading.Event(), threading.Event()
        checkpoints = sqlite._file._checkpoints

        class Wanted(threading.Event):
            def set(self) -> None:
                super().set()
                if checkpoints._closing:
                    is_closing.set()

        def slow(_connection: sqlite3.Connection) -> int:
            copying.set()
            assert is_closing.wait(60)
            return 0

        checkpoints._wanted = Wanted()
        monkeypatch.setattr(sqlite_checkpoint, "copy_log", slow)
        self.write_until(sqlite, copying.is_set)

        closing_it = threading.Thread(target=sqlite.close, daemon=True)
        closing_it.start()
        closing_it.join(20)

        assert not closing_it.is_alive()
