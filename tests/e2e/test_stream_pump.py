"""The stream pump: every consumer gets every change, whatever fails or ends in between."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from farthing.store.sqlite import SqliteEngine
from farthing.store.streams import parse_record
from farthing.store.table import Put, Table
from farthing.surface import Stream
from infra.local.server import streams
from infra.local.server.streams import StreamPump

SECONDS = 20


class Consumer:
    """Notes the keys that it is given, and fails at those it is told to, so many times."""

    def __init__(self, failures: dict[str, int] | None = None) -> None:
        self.failures = failures or {}
        self.taken: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, event: dict[str, Any], _context: object) -> dict[str, Any]:
        with self._changed:
            for record in event["Records"]:
                key = parse_record(record).pk
                if self.failures.get(key, 0) > 0:
                    self.failures[key] -= 1
                    self._changed.notify_all()
                    sequence = record["dynamodb"]["SequenceNumber"]
                    return {"batchItemFailures": [{"itemIdentifier": sequence}]}
                self.taken.append(key)
            self._changed.notify_all()
        return {"batchItemFailures": []}

    def wait_until(self, holds: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, SECONDS)

    def wait_for(self, *keys: str) -> None:
        self.wait_until(lambda: set(keys) <= set(self.taken))


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_FIRST_WAIT", 0.0001)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(tmp_path)
    yield engine
    engine.close()


def write(engine: SqliteEngine, *keys: str, table: Table = Table.EVENTS) -> None:
    for key in keys:
        engine.write(Put(table, key, "e", {"x": 1}))


def pump(
    engine: SqliteEngine, patient: tuple[str, ...] = (), /, **consumers: Consumer
) -> StreamPump:
    streams = {
        Stream(name, Table.EVENTS, patience_minutes=1, never_skips=name in patient): each
        for name, each in consumers.items()
    }
    return StreamPump(engine, streams)


def test_a_patient_consumer_leaves_nothing_out(engine: SqliteEngine) -> None:
    """However often it fails: an event without a number would be missing for ever."""
    hasty, patient = Consumer({"b": 10**9}), Consumer({"b": 40})
    running = pump(engine, ("patient",), hasty=hasty, patient=patient)
    running.start()

    write(engine, "a", "b", "c")

    patient.wait_for("a", "b", "c")
    hasty.wait_for("a", "c")
    running.stop()
    assert patient.taken == ["a", "b", "c"]
    assert hasty.taken == ["a", "c"]


def test_it_stops_while_a_patient_one_fails_and_goes_on_in_the_next_run(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path)
    failing, fine = Consumer({"b": 10**9}), Consumer()
    running = pump(engine, ("patient",), patient=failing, other=fine)
    running.start()
    write(engine, "a", "b", "c")
    failing.wait_until(lambda: failing.failures["b"] < 10**9)
    fine.wait_for("a", "b", "c")
    running.stop()
    engine.close()

    engine = SqliteEngine(tmp_path)
    again = Consumer()
    running = pump(engine, ("patient",), patient=again, other=fine)
    running.start()
    again.wait_for("b", "c")
    running.stop()
    engine.close()

    assert [key for key in again.taken if key != "a"] == ["b", "c"]
    assert fine.taken == ["a", "b", "c"]


def test_nothing_is_forgotten_before_all_have_had_it(engine: SqliteEngine) -> None:
    """The outbox is trimmed behind the slowest of three."""
    free = threading.Event()

    class Slow(Consumer):
        def __call__(self, event: dict[str, Any], context: object) -> dict[str, Any]:
            assert free.wait(SECONDS)
            return super().__call__(event, context)

    one, two, slow = Consumer(), Consumer(), Slow()
    running = pump(engine, one=one, two=two, slow=slow)
    running.start()
    keys = [f"k{number}" for number in range(250)]
    write(engine, *keys)
    one.wait_for(*keys)
    two.wait_for(*keys)
    write(engine, "more")
    assert len(engine.stream_after(0, 1000)) == 251

    free.set()
    slow.wait_for(*keys, "more")
    running.stop()

    assert one.taken == two.taken == slow.taken == [*keys, "more"]
    engine.flush()
    assert engine.stream_after(0, 1000) == []


def test_a_crash_repeats_and_leaves_nothing_out(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path)
    first = Consumer()
    running = pump(engine, ("patient",), patient=first)
    running.start()
    write(engine, "a", "b")
    first.wait_for("a", "b")
    running.stop()
    engine.close(flush=False)  # where it had come to is lost

    engine = SqliteEngine(tmp_path)
    write(engine, "c")
    second = Consumer()
    running = pump(engine, ("patient",), patient=second)
    running.start()
    second.wait_for("c")
    running.stop()
    engine.close()

    assert second.taken[-1] == "c"
    assert set(first.taken + second.taken) == {"a", "b", "c"}


def test_other_tables_are_passed_by(engine: SqliteEngine) -> None:
    consumer = Consumer()
    running = pump(engine, only=consumer)
    running.start()
    write(engine, "log#0", table=Table.CHANGES)
    write(engine, "a")
    consumer.wait_for("a")
    running.stop()

    assert consumer.taken == ["a"]


def test_a_position_is_stored_after_some_changes_and_at_the_end(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[dict[str, int]] = []
    advance = engine.stream_advance
    monkeypatch.setattr(streams, "_STORED_EVERY", 3)
    monkeypatch.setattr(
        engine,
        "stream_advance",
        lambda positions: stored.append(dict(positions)) or advance(positions),
    )
    consumer = Consumer()
    running = pump(engine, one=consumer)
    running.start()
    for key in "abcdefg":
        write(engine, key)
        consumer.wait_for(key)

    running.stop()

    assert stored[-1] == {"one": 7}
    assert len(stored) <= 3
    engine.flush()
    assert engine.stream_after(0, 1000) == []


def test_a_consumer_gets_what_has_come_since_another_one_read(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another wake, which would come with the next change only."""
    monkeypatch.setattr(streams, "_POLL_SECONDS", 1000.0)
    begun, free = threading.Event(), threading.Event()

    class Slow(Consumer):
        def __call__(self, event: dict[str, Any], context: object) -> dict[str, Any]:
            begun.set()
            assert free.wait(SECONDS)
            return super().__call__(event, context)

    quick, slow = Consumer(), Slow()
    running = pump(engine, quick=quick, slow=slow)
    running.start()
    write(engine, "a")
    assert begun.wait(SECONDS)
    for key in ("b", "c"):
        write(engine, key)
        quick.wait_for(key)

    free.set()

    try:
        slow.wait_for("a", "b", "c")
    finally:
        running.stop()
