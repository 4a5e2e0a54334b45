"""What is recalled is what a read would find, whatever is written, by whom, and when."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from farthing.nostr.events import Event
from farthing.nostr.filters import Filter, parse_filter
from farthing.store.answers import PassedRecord, ReaderProcesses
from farthing.store.events import EventStore
from farthing.store.payment import BORROWED, Payment
from farthing.store.planner import ScanAllowance, ScanTooLong
from farthing.store.reader import Reader, to_all
from farthing.store.recall import Recall
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from farthing.store.subscriptions import text_of
from farthing.store.table import Put, Table
from infra.local.server import reading
from infra.local.server.readers import LocalReaderProcesses
from infra.local.server.reading import FOUND, Answerer
from tests.relay.random_worlds import World
from tests.relay.world import START, Clock, made

PLENTY = 10**7


class Relay:
    """One process on a data folder. Its answers are recalled where they can be."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        most: int = PLENTY,
        processes: Callable[[Path], ReaderProcesses] | None = None,
    ) -> None:
        self.engine = SqliteEngine(directory, clock=clock)
        recall = self.engine.recall(most)
        assert recall is not None
        self.recall: Recall = recall
        self.events = EventStore(self.engine, NOSTR, clock=clock, recall=recall)
        self.processes = None if processes is None else processes(self.engine.path)
        self.reader = Reader(self.engine, self.events, 10**6, self.processes)
        if isinstance(self.processes, Elsewhere):
            self.elsewhere = self.processes
        plain = EventStore(self.engine, NOSTR, clock=clock)
        self.plain = Reader(self.engine, plain, 10**6)

    def answer(self, filters: Sequence[Filter]) -> list[str]:
        return [event.id for event in self.reading(filters)]

    def reading(self, filters: Sequence[Filter]) -> Iterator[object]:
        found = self.reader.answer(filters, text_of(filters), to_all, ScanAllowance(10**6))
        return iter(found)  # type: ignore[arg-type]

    def read(self, filters: Sequence[Filter]) -> list[str]:
        return [event.id for event in self.plain.find_any(filters)]

    def knows(self, filters: Sequence[Filter]) -> bool:
        return self.recall.answer(self.reader.question(text_of(filters))) is not None


class Elsewhere:
    """What a reader process does, in this one. `then` happens after it has read."""

    def __init__(self, path: Path) -> None:
        self._answerer = Answerer(path)
        self.then: Callable[[], object] = lambda: None
        self.answered = 0

    def answer(self, filters: str, now: int, most: int) -> bytes | None:
        what, answer = self._answerer.answer(reading.request(filters, now, most))
        self.then()
        self.answered += what == FOUND
        return answer if what == FOUND else None


class Process(LocalReaderProcesses):
    """One, which has started."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 1, 10**6)
        self.wait_for_start()
        self.answered = 0

    def answer(self, filters: str, now: int, most: int) -> bytes | None:
        answer = super().answer(filters, now, most)
        self.answered += answer is not None
        return answer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def relay(tmp_path: Path, clock: Clock) -> Iterator[Relay]:
    made_relay = Relay(tmp_path, clock)
    yield made_relay
    made_relay.engine.close()


@pytest.fixture
def helped(tmp_path: Path, clock: Clock) -> Iterator[Relay]:
    """One for which somebody else reads."""
    made_relay = Relay(tmp_path, clock, processes=Elsewhere)
    yield made_relay
    made_relay.engine.close()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("processes", [None, Elsewhere])
def test_answers_are_those_of_a_plain_read(
    tmp_path: Path, clock: Clock, seed: int, processes: type[Elsewhere] | None
) -> None:
    ask_again_and_again(tmp_path, clock, seed, processes)


@pytest.mark.parametrize("seed", range(100, 103))
def test_answers_of_a_reader_process_are_those_of_a_plain_read(
    tmp_path: Path, clock: Clock, seed: int
) -> None:
    ask_again_and_again(tmp_path, clock, seed, Process)


def ask_again_and_again(
    tmp_path: Path, clock: Clock, seed: int, processes: type[Elsewhere | Process] | None
) -> None:
    """Events come, go, are replaced, borrowed and removed, here and by another process, while a few
    questions are asked again and again."""
    dice = random.Random(seed)
    world = World(seed, 60, wide=False)
    most = PLENTY if seed % 3 else 30_000  # and where little is kept
    relay = Relay(tmp_path, clock, most, processes)
    other = SqliteEngine(tmp_path, clock=clock)
    elsewhere = EventStore(other, NOSTR, clock=clock)
    questions = [[parse_filter(each) for each in world.filters()] for _ in range(12)]
    recalled = 0
    for event in world.events():
        match dice.randrange(10):
            case 0:
                elsewhere.save(event)
            case 1:
                relay.events.remove(dice.choice(world.ids))
            case 2:
                loan = Payment((), BORROWED, expires=START + dice.randint(1, 4))
                relay.events.save(event, payment=loan)
            case 3:
                clock.now += dice.choice([0, 0, 0, 1])
                relay.engine.purge_expired()
            case _:
                relay.events.save(event)
        for filters in dice.choices(questions, k=6):
            recalled += relay.knows(filters)
            assert relay.answer(filters) == relay.read(filters)
        assert relay.recall.bytes <= most
    assert recalled > 30 or most < PLENTY
    if isinstance(relay.processes, Elsewhere | Process):
        assert relay.processes.answered > 30
    if isinstance(relay.processes, Process):
        relay.processes.stop()
    relay.engine.close()
    other.close()


ALL = [Filter(limit=10)]


class TestWhatIsKept:
    def test_the_second_answer_reads_nothing(self, relay: Relay) -> None:
        events = [made(created_at=START + number) for number in range(5)]
        for event in events:
            relay.events.save(event)
        expected = [event.id for event in reversed(events)]
        assert relay.answer(ALL) == expected
        relay.engine._file._readers.connection = None  # any read would fail
        assert relay.answer(ALL) == expected

    def test_another_limit_is_another_question(self, relay: Relay) -> None:
        for number in range(3):
            relay.events.save(made(created_at=START + number))
        assert len(relay.answer(ALL)) == 3
        assert len(relay.answer([replace(ALL[0], limit=2)])) == 2

    def test_an_answer_that_is_not_read_to_its_end_is_not_kept(self, relay: Relay) -> None:
        for number in range(3):
            relay.events.save(made(created_at=START + number))
        next(relay.reading(ALL))
        assert not relay.knows(ALL)

    @pytest.mark.parametrize("kind", [4, 1059])
    def test_an_answer_with_private_events_is_not_kept(self, relay: Relay, kind: int) -> None:
        relay.events.save(made(kind=kind))
        assert len(relay.answer(ALL)) == 1
        assert not relay.knows(ALL)

    def test_ids_that_are_not_all_here_are_looked_for_again(self, relay: Relay) -> None:
        here, late = made(), made()
        relay.events.save(here)
        filters = [Filter(ids=frozenset({here.id, late.id}))]
        assert relay.answer(filters) == [here.id]
        relay.events.save(late)
        assert sorted(relay.answer(filters)) == sorted([here.id, late.id])

    def test_an_event_whose_postings_came_first_is_not_missed(self, relay: Relay) -> None:
        event = made()
        relay.engine.write_batch(relay.events.lists.postings(event, START, None))
        assert relay.answer(ALL) == []
        item = {"j": event.to_json(), "p": event.pubkey, "k": 1, "c": START, "w": START}
        relay.engine.write(Put(Table.EVENTS, event.id, "e", item))
        assert relay.answer(ALL) == [event.id]

    def test_of_nothing_nothing_is_kept(self, tmp_path: Path) -> None:
        engine = SqliteEngine(tmp_path)
        assert engine.recall(0) is None
        engine.close()


class TestWhileItIsRead:
    def test_a_new_event_of_its_lists_spoils_it(self, relay: Relay) -> None:
        old, new = made(), made(created_at=START + 1)
        relay.events.save(old)
        reading = relay.reading(ALL)
        next(reading)
        relay.events.save(new)
        assert list(reading) == []
        assert relay.answer(ALL) == [new.id, old.id]

    def test_an_event_removed_during_a_read_is_not_cached(self, relay: Relay) -> None:
        event = made()
        relay.events.save(event)
        reading = relay.reading(ALL)
        next(reading)
        relay.events.remove(event.id)
        assert list(reading) == []
        assert relay.answer(ALL) == []

    def test_a_write_to_another_list_does_not_spoil_it(self, relay: Relay) -> None:
        relay.events.save(made(kind=1))
        filters = [Filter(kinds=frozenset({1}), limit=10)]
        reading = relay.reading(filters)
        next(reading)
        relay.events.save(made(kind=7))
        assert list(reading) == []
        assert relay.knows(filters)


class TestReadElsewhere:
    def test_it_is_kept_and_so_are_its_events(self, helped: Relay) -> None:
        event = made()
        helped.events.save(event)
        (found,) = helped.reading(ALL)
        assert isinstance(found, PassedRecord)
        assert helped.knows(ALL)
        assert helped.events.get_many([event.id])[event.id] is found

    def test_a_record_says_what_a_record_of_this_process_says(
        self, helped: Relay, clock: Clock
    ) -> None:
        for loan in (None, Payment((), BORROWED, expires=START + 5)):
            clock.now += 1
            event = replace(made(tags=[["t", "x"]]), content="a \u00e9 \u2028")
            helped.events.save(event, payment=loan)
        for found, plain in zip(helped.reading(ALL), helped.plain.find_any(ALL), strict=True):
            assert isinstance(found, PassedRecord)
            for name in ("id", "pubkey", "kind", "created_at", "json", "octets", "event"):
                assert getattr(found, name) == getattr(plain, name)
            for name in ("written", "expires", "payment"):
                assert getattr(found, name) == getattr(plain, name)

    @pytest.mark.parametrize("kind", [4, 1059])
    def test_private_events_are_read_here(self, helped: Relay, kind: int) -> None:
        event = made(kind=kind)
        helped.events.save(event)
        hidden = helped.reader.answer(ALL, text_of(ALL), lambda _: False, ScanAllowance(10))
        assert list(hidden) == []
        assert helped.answer(ALL) == [event.id]
        assert helped.elsewhere.answered == 0

    def test_what_takes_many_index_entries_is_read_here(self, helped: Relay) -> None:
        for number in range(5):
            helped.events.save(made(created_at=START + number))
        with pytest.raises(ScanTooLong):
            list(helped.reader.answer(ALL, text_of(ALL), to_all, ScanAllowance(4)))
        assert helped.elsewhere.answered == 0

    def test_an_event_whose_postings_came_first_is_not_missed(self, helped: Relay) -> None:
        event = made()
        helped.engine.write_batch(helped.events.lists.postings(event, START, None))
        assert helped.answer(ALL) == []
        item = {"j": event.to_json(), "p": event.pubkey, "k": 1, "c": START, "w": START}
        helped.engine.write(Put(Table.EVENTS, event.id, "e", item))
        assert helped.answer(ALL) == [event.id]

    def test_a_new_event_of_its_lists_spoils_it(self, helped: Relay) -> None:
        event = made()
        helped.elsewhere.then = lambda: helped.events.save(event)
        assert helped.answer(ALL) == []
        assert helped.answer(ALL) == [event.id]

    def test_an_event_removed_during_a_read_elsewhere_is_not_cached(self, helped: Relay) -> None:
        event = made()
        helped.events.save(event)
        helped.elsewhere.then = lambda: helped.events.remove(event.id)
        assert helped.answer(ALL) == [event.id]
        assert helped.answer(ALL) == []

    def test_a_removal_of_what_is_not_in_its_lists_spoils_it(self, helped: Relay) -> None:
        """The event's own item is what is read: of its postings the last may still stand."""
        event = made()
        helped.events.save(event)
        tombstone = Put(Table.EVENTS, event.id, "e", {"by": [event.pubkey]})
        helped.elsewhere.then = lambda: helped.engine.write(tombstone)
        assert helped.answer(ALL) == [event.id]
        assert helped.answer(ALL) == []

    def test_a_write_to_another_list_does_not_spoil_it(self, helped: Relay) -> None:
        filters = [Filter(kinds=frozenset({1}), limit=10)]
        helped.elsewhere.then = lambda: helped.events.save(made(kind=7))
        assert helped.answer(filters) == []
        assert helped.knows(filters)

    def test_what_another_process_writes_spoils_it(self, helped: Relay, tmp_path: Path) -> None:
        event = made()
        helped.elsewhere.then = lambda: in_another_process(tmp_path, event)
        assert helped.answer(ALL) == []
        assert not helped.knows(ALL)


class TestOtherProcesses:
    def test_what_they_write_is_noticed_at_once(self, relay: Relay, tmp_path: Path) -> None:
        first, second = made(), made(created_at=START + 1)
        relay.events.save(first)
        assert relay.answer(ALL) == [first.id]
        assert relay.knows(ALL)
        in_another_process(tmp_path, second)
        assert relay.answer(ALL) == [second.id, first.id]

    def test_sqlite_keeps_its_lock_on_the_index_of_the_log(
        self, relay: Relay, tmp_path: Path
    ) -> None:
        """Without it, the next process that opens the database would cut the index off."""
        program = f"""
import fcntl
with open({str(tmp_path / "farthing.db-shm")!r}, "r+b") as shared:
    fcntl.lockf(shared, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)
"""
        tried = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert b"BlockingIOError" in tried.stderr

    def test_our_own_commits_are_not_taken_for_theirs(self, relay: Relay) -> None:
        """Also those that change nothing."""
        filters = [Filter(kinds=frozenset({1}), limit=10)]
        event, other = made(kind=1), made(kind=7)
        relay.events.save(event)
        assert relay.answer(filters) == [event.id]
        relay.engine.flush()
        relay.events.save(other)
        relay.events.save(other)
        relay.engine.purge_expired()
        assert relay.knows(filters)

    def test_our_own_commit_is_not_taken_for_theirs_before_it_is_counted(
        self, relay: Relay
    ) -> None:
        others = relay.engine._file.others
        before = others.seen()
        others.begin()
        others._expected -= 1
        assert others.seen() == before
        others.end()
        assert others.seen() == before

    def test_their_commit_beside_ours_is_noticed(self, relay: Relay, tmp_path: Path) -> None:
        """Even where ours has changed nothing, so that theirs could be taken for it."""
        others = relay.engine._file.others
        before = others.seen()
        others.begin()
        in_another_process(tmp_path, made())
        others.end()
        assert others.seen() != before


def in_another_process(directory: Path, event: Event) -> None:
    program = f"""
from pathlib import Path
from farthing.nostr.events import known_event
from farthing.store.events import EventStore
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
engine = SqliteEngine(Path({str(directory)!r}))
EventStore(engine, NOSTR, clock=lambda: {START}).save(known_event({event.to_json()!r}))
engine.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
