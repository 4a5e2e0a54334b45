"""Many handlers in one thread, one commit for many of them, and work beside the commit."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from greenlet import getcurrent

from farthing.store import sqlite_rows
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Absent, ConditionFailed, Item, Key, Put, Table
from infra.local.server.write_scheduler import WriteScheduler

_SECONDS = 10


class Here:
    def put(self, call) -> None:
        call()


class Commits:
    """Commits that end when the test says so."""

    def __init__(self) -> None:
        self.begun: SimpleQueue[str] = SimpleQueue()
        self._end = threading.Semaphore(0)

    def of(self, name: str):
        def commit() -> None:
            self.begun.put(name)
            assert self._end.acquire(timeout=_SECONDS)

        return commit

    def end(self, number: int = 1) -> None:
        self._end.release(number)


@pytest.fixture
def scheduler() -> Iterator[WriteScheduler]:
    scheduler = WriteScheduler(Here())
    yield scheduler
    scheduler.stop()


def test_handlers_run_while_a_commit_is_under_way(scheduler: WriteScheduler) -> None:
    commits, ended = Commits(), SimpleQueue[str]()
    scheduler.submit(lambda: scheduler.park(commits.of("first")), lambda _: ended.put("first"))
    assert commits.begun.get(timeout=_SECONDS) == "first"

    scheduler.submit(lambda: None, lambda _: ended.put("needs no commit"))

    assert ended.get(timeout=_SECONDS) == "needs no commit"
    commits.end()
    assert ended.get(timeout=_SECONDS) == "first"


def committing_threads(scheduler: WriteScheduler, number: int) -> list[str]:
    """The threads that commit for handlers that come one after another."""
    names, ended = list[str](), SimpleQueue[object]()
    for _ in range(number):
        scheduler.submit(
            lambda: scheduler.park(lambda: names.append(threading.current_thread().name)),
            ended.put,
        )
        ended.get(timeout=_SECONDS)
    return names


def test_handlers_that_come_one_at_a_time_are_committed_for_where_they_run(
    scheduler: WriteScheduler,
) -> None:
    assert committing_threads(scheduler, 3) == ["committer", "scheduler", "scheduler"]


def test_a_handler_that_comes_during_a_commit_makes_the_second_thread_commit_again(
    scheduler: WriteScheduler,
) -> None:
    assert committing_threads(scheduler, 2)[-1] == "scheduler"
    commits, ended = Commits(), SimpleQueue[object]()
    scheduler.submit(lambda: scheduler.park(commits.of("one")), ended.put)
    assert commits.begun.get(timeout=_SECONDS) == "one"
    scheduler.submit(lambda: None, ended.put)
    commits.end()
    for _ in range(2):
        ended.get(timeout=_SECONDS)

    assert committing_threads(scheduler, 2) == ["committer", "scheduler"]


def test_answers_are_there_before_others_are_told_of_the_commit() -> None:
    mail = SimpleQueue[str]()

    class Mail:
        def put(self, call) -> None:
            mail.put(call())

    scheduler = WriteScheduler(Mail())
    committed = scheduler.tell_after_answers(lambda: "told")
    try:
        for _ in range(3):  # by the second thread, and by the first
            scheduler.submit(lambda: scheduler.park(committed), lambda _: "answered")
            assert [mail.get(timeout=_SECONDS) for _ in range(2)] == ["answered", "told"]
        committed()  # by a thread of its own
        assert mail.get(timeout=_SECONDS) == "told"
    finally:
        scheduler.stop()


def test_a_handler_that_parks_during_a_commit_waits_for_the_next(scheduler: WriteScheduler) -> None:
    commits, ended = Commits(), SimpleQueue[str]()
    for name in ("first", "second"):
        scheduler.submit(
            lambda n=name: scheduler.park(commits.of(n)), lambda _, n=name: ended.put(n)
        )
        if name == "first":
            assert commits.begun.get(timeout=_SECONDS) == "first"

    commits.end()

    assert ended.get(timeout=_SECONDS) == "first"
    assert commits.begun.get(timeout=_SECONDS) == "second"
    assert ended.empty()
    commits.end()
    assert ended.get(timeout=_SECONDS) == "second"


def test_one_commit_serves_a_group_and_leaves_the_other_half_for_the_next(
    scheduler: WriteScheduler,
) -> None:
    commits, ended = Commits(), SimpleQueue[int]()
    scheduler.submit(lambda: scheduler.park(commits.of("first")), lambda _: None)
    assert commits.begun.get(timeout=_SECONDS) == "first"
    for number in range(40):
        scheduler.submit(
            lambda n=number: scheduler.park(commits.of(str(n))), lambda _, n=number: ended.put(n)
        )
    scheduler.call(lambda: None)  # behind them: they are parked by then

    commits.end(number=4)

    assert [ended.get(timeout=_SECONDS) for _ in range(40)] == list(range(40))
    # Half of the forty; then sixteen, below which halves are not worth a commit; then the rest.
    assert [commits.begun.get_nowait() for _ in range(3)] == ["19", "35", "39"]


def test_stopping_finishes_what_is_parked() -> None:
    scheduler, ended = WriteScheduler(Here()), SimpleQueue[str]()
    commits = Commits()
    scheduler.submit(lambda: scheduler.park(commits.of("last")), lambda _: ended.put("last"))
    assert commits.begun.get(timeout=_SECONDS) == "last"
    stopping = threading.Thread(target=scheduler.stop)
    stopping.start()

    commits.end()

    stopping.join(_SECONDS)
    assert not stopping.is_alive()
    assert ended.get_nowait() == "last"


def test_those_who_can_go_on_read_together(scheduler: WriteScheduler) -> None:
    commits, reads, ended = Commits(), list[int](), SimpleQueue[int]()
    waiting = list[int]()

    def read() -> None:
        reads.append(len(waiting))
        waiting.clear()

    def look(number: int) -> int:
        for _ in range(2):
            waiting.append(number)
            scheduler.gather(read)
        return number

    scheduler.submit(lambda: scheduler.park(commits.of("first")), lambda _: None)
    assert commits.begun.get(timeout=_SECONDS) == "first"
    scheduler.call(lambda: [scheduler.submit(lambda n=n: look(n), ended.put) for n in range(30)])

    assert [ended.get(timeout=_SECONDS) for _ in range(30)] == list(range(30))
    assert reads == [30, 30]  # and none of them has waited for the commit
    commits.end()


class TestOnTheStore:
    @pytest.fixture
    def engine(self, tmp_path: Path, scheduler: WriteScheduler) -> Iterator[SqliteEngine]:
        engine = SqliteEngine(tmp_path)
        engine.park_in(scheduler)
        yield engine
        engine.close(flush=False)

    def test_what_a_handler_has_written_is_on_the_disk_when_it_goes_on(
        self, engine: SqliteEngine, scheduler: WriteScheduler, tmp_path: Path
    ) -> None:
        def write_and_look(number: int) -> int:
            engine.write_batch([Put(Table.POSTINGS, "p", str(number), {})], deferred=True)
            engine.write(Put(Table.EVENTS, str(number), "e", {}))
            with sqlite3.connect(tmp_path / "farthing.db") as other:
                sql = "SELECT (SELECT count(*) FROM events WHERE pk = ?) + count(*)"
                found = other.execute(f"{sql} FROM postings WHERE sk = ?", (str(number),) * 2)
                return found.fetchone()[0]

        found: SimpleQueue[int] = SimpleQueue()
        for number in range(200):
            scheduler.submit(lambda n=number: write_and_look(n), found.put)

        assert [found.get(timeout=_SECONDS) for _ in range(200)] == [2] * 200

    def test_a_condition_holds_between_handlers_of_different_groups(
        self, engine: SqliteEngine, scheduler: WriteScheduler
    ) -> None:
        won: SimpleQueue[bool] = SimpleQueue()

        def claim() -> bool:
            try:
                engine.write(Put(Table.EVENTS, "one", "e", {}, Absent()))
            except ConditionFailed:
                return False
            return True

        for _ in range(100):
            scheduler.submit(claim, won.put)

        assert sum(won.get(timeout=_SECONDS) for _ in range(100)) == 1

    def test_handlers_that_look_at_items_share_a_statement_and_each_sees_its_own(
        self, engine: SqliteEngine, scheduler: WriteScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(0, 100, 2):
            engine.write(Put(Table.LEDGER, str(number), "x", {"n": number, "b": b"\0"}))
        engine.write(Put(Table.EVENTS, "gone", "e", {"expires": 1}))
        statements: list[Table] = []
        read = sqlite_rows.read

        def counted(connection: sqlite3.Connection, table: Table, keys: list[Key]) -> object:
            statements.append(table)
            return read(connection, table, keys)

        monkeypatch.setattr(sqlite_rows, "read", counted)

        def look(number: int) -> list[Item | None]:
            places = [(Table.LEDGER, str(number), "x"), (Table.EVENTS, "gone", "e")]
            return [engine.get(*place) for place in places]

        found: SimpleQueue[object] = SimpleQueue()
        scheduler.call(
            lambda: [scheduler.submit(lambda n=n: look(n), found.put) for n in range(50)]
        )

        assert [found.get(timeout=_SECONDS) for _ in range(50)] == [
            [None if number % 2 else {"n": number, "b": b"\0"}, None] for number in range(50)
        ]
        assert statements == [Table.LEDGER, Table.EVENTS]

    @pytest.mark.parametrize(
        "key", ["a\0b", 'a"b', "a\\b", "\n\x01\x7f", "\u2028é😀", "[1]", "null"]
    )
    def test_an_item_under_any_key(
        self, engine: SqliteEngine, scheduler: WriteScheduler, key: str
    ) -> None:
        engine.write(Put(Table.EVENTS, key, key, {"v": key}))
        assert scheduler.call(lambda: engine.get(Table.EVENTS, key, key)) == {"v": key}
        assert scheduler.call(lambda: engine.get(Table.EVENTS, key, key + "x")) is None

    def test_what_is_committed_is_seen_by_whoever_looks_then(
        self, engine: SqliteEngine, scheduler: WriteScheduler
    ) -> None:
        def write_and_look(number: int) -> bool:
            engine.write(Put(Table.EVENTS, str(number), "e", {"n": number}))
            return engine.get(Table.EVENTS, str(number), "e") == {"n": number}

        seen: SimpleQueue[object] = SimpleQueue()
        for number in range(200):
            scheduler.submit(lambda n=number: write_and_look(n), seen.put)

        assert [seen.get(timeout=_SECONDS) for _ in range(200)] == [True] * 200

    def test_a_statement_that_fails_fails_for_those_who_shared_it(
        self, engine: SqliteEngine, scheduler: WriteScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        def look() -> str:
            try:
                engine.get(Table.EVENTS, "one", "e")
            except sqlite3.OperationalError:
                return "failed"
            return "seen"

        outcomes: SimpleQueue[str] = SimpleQueue()
        with monkeypatch.context() as broken:
            broken.setattr(sqlite_rows, "read", fail)
            for _ in range(20):
                scheduler.submit(look, outcomes.put)
            assert [outcomes.get(timeout=_SECONDS) for _ in range(20)] == ["failed"] * 20
        scheduler.submit(look, outcomes.put)
        assert outcomes.get(timeout=_SECONDS) == "seen"

    def test_threads_write_beside_the_hub(
        self, engine: SqliteEngine, scheduler: WriteScheduler
    ) -> None:
        done: SimpleQueue[object] = SimpleQueue()

        def write(name: str) -> None:
            for number in range(50):
                engine.write(Put(Table.EVENTS, f"{name}{number}", "e", {}))

        threads = [threading.Thread(target=write, args=(f"thread-{each}-",)) for each in range(4)]
        for thread in threads:
            thread.start()
        for number in range(200):
            scheduler.submit(
                lambda n=number: engine.write(Put(Table.EVENTS, f"h{n}", "e", {})), done.put
            )
        for thread in threads:
            thread.join(_SECONDS)

        assert [done.get(timeout=_SECONDS) for _ in range(200)] == [None] * 200
        names = [f"thread-{each}-{number}" for each in range(4) for number in range(50)]
        found = engine.get_many(Table.EVENTS, [(name, "e") for name in names])
        assert len(found) == 200


def test_handlers_run_in_greenlets_that_are_used_again(scheduler: WriteScheduler) -> None:
    used = [scheduler_greenlet(scheduler) for _ in range(3)]
    assert len(set(used)) == 1

    ended: SimpleQueue[object] = SimpleQueue()
    scheduler.submit(lambda: 1 / 0, ended.put)
    assert ended.get(timeout=_SECONDS) is None
    assert scheduler_greenlet(scheduler) == used[0]


def scheduler_greenlet(scheduler: WriteScheduler) -> object:
    ended: SimpleQueue[object] = SimpleQueue()
    scheduler.submit(lambda: id(getcurrent()), ended.put)
    return ended.get(timeout=_SECONDS)


def test_what_is_run_together_shares_one_commit(tmp_path: Path) -> None:
    engine, commits = SqliteEngine(tmp_path), list[int]()
    scheduler = WriteScheduler(Here(), hurried=False)
    engine.park_in(scheduler)
    commit = engine._file._commit

    def counted(group) -> bool:
        commits.append(len(group))
        return commit(group)

    engine._file._commit = counted  # type: ignore[method-assign]
    scheduler.run_together(
        [lambda n=n: engine.write(Put(Table.LEDGER, "p", str(n), {})) for n in range(300)]
    )
    scheduler.stop()
    assert commits == [300]
    engine.close()
