"""The process dies at any operation of a save: no event is ever there and not found."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from farthing.nostr.events import Event
from farthing.nostr.filters import Filter
from farthing.store.events import EventStore, Outcome, event_item
from farthing.store.reader import Reader
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Put, StoreError, Table
from tests.relay.world import START, made
from tests.store.faulty import Crash, Fault, FaultyEngine, at

ME = "a" * 64
NOTE = made(tags=[["t", "x"], ["e", "c" * 64]])
OLD = made(kind=0, tags=[["t", "old"]])
NEW = made(kind=0, tags=[["t", "new"]], created_at=START + 1)
ARTICLE = made(kind=30023, tags=[["d", "x"], ["t", "y"]])
DELETION = made(
    kind=5, created_at=START + 9, tags=[["e", NOTE.id], ["e", OLD.id], ["a", f"30023:{ME}:x"]]
)
SCENARIOS: dict[str, tuple[Sequence[Event], Event]] = {
    "regular": ([], NOTE),
    "first version": ([], OLD),
    "next version": ([OLD], NEW),
    "deletion": ([NOTE, OLD, ARTICLE], DELETION),
    "deletion in advance": ([], DELETION),
}
FAULTS = {
    "before": Fault(Crash),
    "after": Fault(Crash, after=True),
    "halfway": Fault(Crash, written=2),
    "error before": Fault(StoreError),
    "error after": Fault(StoreError, after=True),
}


def operations(directory: Path, before: Sequence[Event], event: Event) -> int:
    engine = FaultyEngine(SqliteEngine(directory))
    store = EventStore(engine, NOSTR)
    for each in before:
        store.save(each)
    engine.operations.clear()
    store.save(event)
    engine.inner.close()
    return len(engine.operations)


def indexes(event: Event) -> Iterator[Filter]:
    yield Filter()
    yield Filter(authors=frozenset([event.pubkey]))
    yield Filter(authors=frozenset([event.pubkey]), kinds=frozenset([event.kind]))
    yield Filter(kinds=frozenset([event.kind]))
    for letter, value in event.indexed_tags():
        yield Filter(tags={letter: frozenset([value])})


def check_found(engine: SqliteEngine, events: Sequence[Event]) -> set[str]:
    """Every event that is there is found through all its indexes. The ids of those there."""
    store = EventStore(engine, NOSTR)
    reader = Reader(engine, store, max_scan=1000)
    there = {event.id for event in events if store.get(event.id) is not None}
    for event in events:
        for filter in indexes(event):
            found = event.id in [each.id for each in reader.find(filter)]
            assert found == (event.id in there), (event, filter)
    return there


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize(("before", "event"), SCENARIOS.values(), ids=SCENARIOS)
def test_a_save_may_end_anywhere(
    tmp_path: Path, before: Sequence[Event], event: Event, fault: Fault
) -> None:
    count = operations(tmp_path / "whole", before, event)
    assert count >= 2
    for number in range(count):
        directory = tmp_path / str(number)
        # given what was stored before
        engine = SqliteEngine(directory)
        for each in before:
            EventStore(engine, NOSTR).save(each)
        # when the save ends at this operation, and the process with it
        with pytest.raises((Crash, StoreError)):
            EventStore(FaultyEngine(engine, at(number, fault)), NOSTR).save(event)
        engine.close(flush=False)
        # then whatever is there is found
        engine = SqliteEngine(directory)
        there = check_found(engine, [*before, event])
        if event is NEW:
            assert there in ({OLD.id}, {NEW.id})  # one version, never both, never none
        # and the same message, sent again, completes it
        again = EventStore(engine, NOSTR).save(event)
        assert again is (Outcome.DUPLICATE if event.id in there else Outcome.STORED)
        assert check_found(engine, [*before, event]) == {event.id}
        engine.close()


@pytest.mark.parametrize("fault", [FAULTS["before"], FAULTS["after"], FAULTS["halfway"]])
def test_what_was_acknowledged_is_there_after_a_crash(tmp_path: Path, fault: Fault) -> None:
    engine = SqliteEngine(tmp_path)
    for event in (NOTE, OLD, NEW):
        assert EventStore(engine, NOSTR).save(event) is Outcome.STORED
    with pytest.raises(Crash):
        EventStore(FaultyEngine(engine, at(0, fault)), NOSTR).save(ARTICLE)
    engine.close(flush=False)

    engine = SqliteEngine(tmp_path)

    assert check_found(engine, [NOTE, OLD, NEW, ARTICLE]) >= {NOTE.id, NEW.id}
    engine.close()


def test_the_checks_above_can_fail(tmp_path: Path) -> None:
    """A store that wrote the event before its postings would be caught."""
    engine = SqliteEngine(tmp_path)
    engine.write(Put(Table.EVENTS, NOTE.id, "e", event_item(NOTE, 0)))

    with pytest.raises(AssertionError):
        check_found(engine, [NOTE])
    engine.close()
