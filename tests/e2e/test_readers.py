"""Processes that read for the server: what they answer, and how they come and go."""

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from farthing.nostr.filters import Filter, parse_filter
from farthing.store.answers import unpack_answer
from farthing.store.events import EventStore
from farthing.store.payment import BORROWED, Payment
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from farthing.store.sqlite_read_only import OnlyReads, ReadOnlyEngine
from farthing.store.subscriptions import text_of
from farthing.store.table import Put, StoreError, Table
from infra.local.server.readers import LocalReaderProcesses, _Process, number_of_readers
from infra.local.server.reading import Answerer, find
from tests.e2e.authors import Author
from tests.e2e.conftest import OPEN
from tests.relay.random_worlds import World
from tests.relay.world import START, made

_SECONDS = 60.0  # that anything here is waited for
_ALL = text_of([Filter(limit=10)])
_PLENTY = 10**6
LOAN = Payment((), BORROWED, expires=START + 3)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SqliteEngine]:
    opened = SqliteEngine(tmp_path)
    EventStore(opened, NOSTR, clock=lambda: START).save(made())
    yield opened
    opened.close()


@contextmanager
def reading(
    engine: SqliteEngine, number: int = 1, answer_seconds: float = _SECONDS
) -> Iterator[LocalReaderProcesses]:
    processes = LocalReaderProcesses(engine.path, number, _PLENTY, answer_seconds=answer_seconds)
    processes.wait_for_start()
    yield processes
    processes.stop()


def number_found(processes: LocalReaderProcesses, most: int = _PLENTY) -> int | None:
    """How many events; None if that was left to the caller."""
    packed = processes.answer(_ALL, START, most)
    return None if packed is None else len(unpack_answer(packed, NOSTR.parse).records)


@contextmanager
def ending(*pids: int) -> Iterator[None]:
    """All of these end within the block, or soon after it."""
    watched = [os.pidfd_open(pid) for pid in pids]
    yield
    for pidfd in watched:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(_SECONDS * 1000)
        os.close(pidfd)


def test_every_commit_is_seen_by_the_next_question(engine: SqliteEngine) -> None:
    events = EventStore(engine, NOSTR, clock=lambda: START)
    with reading(engine) as processes:
        for number in range(1, 10):
            assert number_found(processes) == number
            events.save(made())


@pytest.mark.parametrize("seed", range(10))
def test_what_one_list_answers_is_found_at_once(tmp_path: Path, seed: int) -> None:
    world, engine = World(seed, 60), SqliteEngine(tmp_path, clock=lambda: START)
    events, at_once = EventStore(engine, NOSTR, clock=lambda: START), 0
    for number, event in enumerate(world.events()):
        events.save(event, payment=LOAN if number % 7 == 0 else None)
    for ghost in world.ghosts():
        engine.write_batch(events.lists.postings(ghost, START, None))
    answerer = Answerer(engine.path)
    for number in range(200):
        filter = parse_filter({**world.filter(), "limit": 1 + number % 9})
        answerer._now = START + number % 5  # some have expired
        with answerer._engine.snapshot():
            found = answerer._newest([filter], _PLENTY)
            if found is not None:
                one_by_one = find(answerer._reader, [filter], _PLENTY)
                assert one_by_one is not None
                # The first octet says that the answer lasts; the other way looks behind its end.
                assert (found[0], found[1:]) == (True, one_by_one[1:]), filter
                at_once += 1
    engine.close()
    assert at_once >= 5


def test_many_threads_ask_a_few_processes(engine: SqliteEngine) -> None:
    with reading(engine, 2) as processes:
        found: list[int | None] = []
        threads = [
            threading.Thread(target=lambda: found.append(number_found(processes)))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [1] * 12


def test_more_index_entries_than_are_allowed_are_left_to_the_server(engine: SqliteEngine) -> None:
    EventStore(engine, NOSTR, clock=lambda: START).save(made())
    with reading(engine) as processes:
        assert number_found(processes, most=2) == 2
        assert number_found(processes, most=1) is None
        assert number_found(processes, most=0) is None


def test_a_caller_in_a_hurry_asks_no_other_process(engine: SqliteEngine) -> None:
    processes = LocalReaderProcesses(engine.path, 1, _PLENTY, is_hurried=lambda: True)
    processes.wait_for_start()
    assert number_found(processes) is None
    processes.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_dies_or_hangs_is_replaced(engine: SqliteEngine, number: signal.Signals) -> None:
    with reading(engine, answer_seconds=0.2) as processes:
        (pid,) = processes.pids()
        with ending(pid):
            os.kill(pid, number)
            assert number_found(processes) is None
        processes.wait_for_start()
        assert processes.pids() != [pid]
        with reading(engine) as others:  # with all the time they may need
            assert number_found(others) == 1
        assert processes.pids()


def test_one_that_is_killed_while_it_is_asked_is_replaced(engine: SqliteEngine) -> None:
    with reading(engine) as processes:
        (pid,) = processes.pids()
        os.kill(pid, signal.SIGSTOP)  # so that it has the question and no answer
        found: list[int | None] = []
        asking = threading.Thread(target=lambda: found.append(number_found(processes)))
        with ending(pid):
            asking.start()
            os.kill(pid, signal.SIGKILL)
            asking.join()
        assert found == [None]
        processes.wait_for_start()
        assert number_found(processes) == 1


def test_a_question_that_makes_no_sense_is_left_to_the_server(engine: SqliteEngine) -> None:
    with reading(engine) as processes:
        assert processes.answer("[{]", START, _PLENTY) is None
        assert number_found(processes) == 1


def test_they_end_with_the_stop(engine: SqliteEngine) -> None:
    with reading(engine, 2) as processes, ending(*processes.pids()):
        processes.stop()
    assert number_found(processes) is None


def test_a_stop_does_not_wait_for_those_that_start(engine: SqliteEngine) -> None:
    processes = LocalReaderProcesses(engine.path, 1, _PLENTY)
    processes.stop()
    assert number_found(processes) is None


def test_one_that_cannot_open_the_file_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "farthing.db").write_text("no database" * 1000)
    process = _Process(tmp_path / "farthing.db")
    with pytest.raises(OSError, match="not a database"):
        process.wait_for_start()
    process.end(_SECONDS)
    assert capfd.readouterr().err == ""


def test_they_are_told_no_secret(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARTHING_SECRET_KEY", "1" * 64)
    with reading(engine) as processes:
        (pid,) = processes.pids()
        environment = Path(f"/proc/{pid}/environ").read_text()
    names = {row.partition("=")[0] for row in environment.split("\0") if row}
    assert names <= {"PYTHONPATH", "LD_LIBRARY_PATH"}


def test_a_terminal_that_is_interrupted_ends_the_server_first(engine: SqliteEngine) -> None:
    with reading(engine) as processes:
        (pid,) = processes.pids()
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        assert number_found(processes) == 1
        assert processes.pids() == [pid]


class TestReadOnly:
    def test_a_read_only_engine_writes_nothing(self, engine: SqliteEngine) -> None:
        seen = engine._file.others.seen()
        only = ReadOnlyEngine(engine.path)
        put = Put(Table.EVENTS, "pk", "sk", {})
        for write in (only.write, lambda put: only.write_batch([put])):
            with pytest.raises(OnlyReads):
                write(put)
        with pytest.raises(OnlyReads):
            only.transact([put])
        with pytest.raises(Exception, match="readonly"):
            only._file.reader.execute("DELETE FROM events")
        only.close()
        assert engine._file.others.seen() == seen

    def test_another_layout_is_refused(self, engine: SqliteEngine) -> None:
        engine._file._writer.execute("PRAGMA user_version = 2")
        with pytest.raises(StoreError, match="layout 2"):
            ReadOnlyEngine(engine.path)


def test_the_default_depends_on_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert number_of_readers(0) == 0
    assert number_of_readers(7) == 7
    for cores, number in ((1, 0), (2, 1), (3, 2), (64, 2)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: range(cores))
        assert number_of_readers(None) == number


def readers_of(server: int) -> list[int]:
    children = Path(f"/proc/{server}/task").glob("*/children")
    pids = [int(pid) for path in children for pid in path.read_text().split()]
    return [pid for pid in pids if b"server.reading" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_takes_its_readers_along(
    start_relay: Callable[..., object], connect: Callable[..., object], end: signal.Signals
) -> None:
    relay = start_relay(**OPEN, readers=2, read_cache=0)
    client, author = connect(relay), Author()
    events = [author.event(f"{number}") for number in range(5)]
    client.store(*events)
    for _ in range(20):
        assert sorted(client.ids({"authors": [author.pubkey]})) == sorted(e["id"] for e in events)
    pids = readers_of(relay.process.pid)
    assert len(pids) == 2
    with ending(*pids):
        relay.send_signal(end)
        relay.wait()
