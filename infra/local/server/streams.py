"""The work of DynamoDB Streams and event source mappings: passes changes to handlers, in order, at
least once, with retries. A record that keeps failing is skipped, unless the consumer never skips a
record."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from farthing.store.sqlite import SqliteEngine
from farthing.store.sqlite_outbox import OutboxChange
from farthing.store.streams import Record
from farthing.surface import Stream

log = logging.getLogger("farthing")

_BATCH = 490
_ATTEMPTS = 5
_POLL_SECONDS = 1.0
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 5.0
_ARN_PREFIX = "arn:aws:dynamodb:local:000000000000:table/farthing-"
_BATCHES_KEPT = 4
# Changes that a consumer handles before its position is stored. After a crash, it gets at most so
# many of them again.
_STORED_EVERY = 256

Handler = Callable[[dict[str, Any], object], dict[str, Any]]
# Runs a function in another thread and waits for the result.
Run = Callable[[Callable[[], Any]], Any]


def here(work: Callable[[], Any]) -> Any:
    return work()


class _Delivery(NamedTuple):
    change: OutboxChange
    record: Record  # the change in the form that handlers get


class _Outbox:
    """Batches of the outbox, read once for all consumers at the same position."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._batches: dict[int, list[_Delivery]] = {}

    def after(self, sequence: int) -> list[_Delivery]:
        with self._mutex:
            batch = self._batches.get(sequence)
            if batch is None:
                changes = self._engine.stream_after(sequence, _BATCH)
                now = time.time()
                batch = [_Delivery(each, Record(each, _ARN_PREFIX, now)) for each in changes]
                if batch:
                    self._batches[sequence] = batch
                while len(self._batches) > _BATCHES_KEPT:
                    del self._batches[next(iter(self._batches))]
        return batch


class StreamPump:
    """Passes changes from the outbox to each consumer, in a thread of its own. `runners` can name
    another way to run a consumer. `announced` turns the function that wakes the consumers into the
    one that the engine calls after a commit."""

    def __init__(
        self,
        engine: SqliteEngine,
        consumers: Mapping[Stream, Handler],
        runners: Mapping[str, Run] = MappingProxyType({}),
        announced: Callable[[Callable[[], None]], Callable[[], None]] = lambda changed: changed,
    ) -> None:
        self._engine = engine
        self._outbox = _Outbox(engine)
        names = [stream.function for stream in consumers]
        self._runners = runners
        self._given_up = dict.fromkeys(names, 0)
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._wake = {name: threading.Event() for name in names}
        self._position = {
            stream.function: (
                engine.stream_end()
                if stream.for_connections
                else engine.stream_position(stream.function)
            )
            for stream in consumers
        }
        self._stored = dict(self._position)
        self._threads = [
            threading.Thread(target=self._run, args=consumer, name=f"stream-{consumer[0].function}")
            for consumer in consumers.items()
        ]
        engine.on_change(announced(self._changed))

    def catch_up(self, name: str, seconds: float) -> None:
        """Wait until a consumer has handled all present changes, at most for `seconds`."""
        end = self._engine.stream_end()
        with self._moved:
            self._moved.wait_for(lambda: self._position[name] >= end, seconds)

    def behind(self) -> dict[str, int]:
        """The number of changes that each consumer has not handled yet."""
        end = self._engine.stream_end()
        return {name: max(0, end - position) for name, position in self._position.items()}

    def given_up(self) -> dict[str, int]:
        """The number of changes that each consumer has skipped since the start."""
        return dict(self._given_up)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        self._changed()  # changes that an earlier run has left

    def stop(self) -> None:
        """Pass on the present changes, and stop."""
        self._stopping.set()
        self._changed()
        for thread in self._threads:
            thread.join()
        self._store_positions()

    def _store_positions(self) -> None:
        self._stored = dict(self._position)
        self._engine.stream_advance(self._stored)

    def _changed(self) -> None:
        for wake in self._wake.values():
            if not wake.is_set():
                wake.set()

    def _run(self, stream: Stream, handler: Handler) -> None:
        name = stream.function
        while True:
            # Another process, such as an import, may write to the same data, and cannot wake us.
            if not self._wake[name].wait(_POLL_SECONDS) and self._position != self._stored:
                self._store_positions()
            if stream.pause_seconds:
                self._stopping.wait(stream.pause_seconds)
            self._wake[name].clear()
            try:
                while self._hand_over(stream, handler):
                    pass
            except Exception:  # tried again with the next change or poll
                log.exception("a consumer cannot read its stream", extra={"consumer": name})
            if self._stopping.is_set():
                return

    def _hand_over(self, stream: Stream, handler: Handler) -> bool:
        """Pass on one batch. Returns whether there may be more. If not, the next change wakes this
        consumer."""
        name = stream.function
        run = self._runners.get(name, here)
        batch: list[_Delivery] = run(lambda: self._outbox.after(self._position[name]))
        if not batch:
            return False
        wanted = [each for each in batch if each.change.table is stream.table]
        if not self._handle(stream, handler, wanted):
            return False
        with self._moved:
            self._position[name] = batch[-1].change.sequence
            self._moved.notify_all()
        if self._position[name] - self._stored[name] >= _STORED_EVERY:
            self._store_positions()
        # Another consumer may have read the batch, and further changes have come since.
        return len(batch) >= _BATCH or self._engine.stream_goes_on(self._position[name])

    def _handle(self, stream: Stream, handler: Handler, batch: Sequence[_Delivery]) -> bool:
        """Whether the consumer has handled the batch. It may not have if it never skips a change
        and the server stops."""
        name, patient = stream.function, stream.never_skips
        attempt, run = 0, self._runners.get(name, here)
        while batch:
            failed = run(partial(_first_failure, handler, batch))
            if failed is None:
                break
            attempt = attempt + 1 if failed == 0 else 1
            batch = batch[failed:]
            if patient and self._stopping.is_set():
                return False
            if attempt < _ATTEMPTS or patient:
                self._stopping.wait(min(_FIRST_WAIT * 2 ** min(attempt, 10), _LONGEST_WAIT))
            else:
                given_up = {"consumer": name, "change": batch[0].change.sequence}
                log.error("a consumer gives up on a change", extra=given_up)
                self._given_up[name] += 1
                batch, attempt = batch[1:], 0
        return True


def _first_failure(handler: Handler, batch: Sequence[_Delivery]) -> int | None:
    """The index of the first change that the handler could not handle."""
    records = [each.record for each in batch]
    try:
        failures = handler({"Records": records}, None)["batchItemFailures"]
    except Exception:
        log.exception("a stream handler failed")
        return 0
    if not failures:
        return None
    failed = {failure["itemIdentifier"] for failure in failures}
    numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
    return next((index for index, number in enumerate(numbers) if number in failed), None)
