"""Does what DynamoDB Streams and event source mappings do: hands changes to handlers, in order, at
least once, with retries. A record that keeps failing is skipped, unless the consumer may skip
none."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from farthing.store.sqlite import OutboxChange, SqliteEngine
from farthing.store.streams import records_of
from farthing.surface import Stream

log = logging.getLogger("farthing")

_BATCH = 490
_ATTEMPTS = 5
_POLL_SECONDS = 1.0
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 5.0
_ARN_PREFIX = "arn:aws:dynamodb:local:000000000000:table/farthing-"
_BATCHES_KEPT = 4

Handler = Callable[[dict[str, Any], object], dict[str, Any]]
# Runs something elsewhere and waits for it.
Run = Callable[[Callable[[], Any]], Any]


def here(work: Callable[[], Any]) -> Any:
    return work()


class _Delivery(NamedTuple):
    change: OutboxChange
    record: dict[str, Any]  # the same as a handler gets it


class _Outbox:
    """Batches of the outbox, read once for all consumers that are at the same place."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._batches: dict[int, list[_Delivery]] = {}

    def after(self, sequence: int) -> list[_Delivery]:
        with self._mutex:
            batch = self._batches.get(sequence)
            if batch is None:
                changes = self._engine.stream_after(sequence, _BATCH)
                records = records_of(changes, _ARN_PREFIX, created=time.time())["Records"]
                batch = list(map(_Delivery, changes, records))
                if batch:
                    self._batches[sequence] = batch
                while len(self._batches) > _BATCHES_KEPT:
                    del self._batches[next(iter(self._batches))]
        return batch


class StreamPump:
    """Drives each consumer from the outbox, in a thread of its own or, where `runners` names one,
    through that."""

    def __init__(
        self,
        engine: SqliteEngine,
        consumers: Mapping[Stream, Handler],
        runners: Mapping[str, Run] = MappingProxyType({}),
    ) -> None:
        self._engine = engine
        self._outbox = _Outbox(engine)
        names = [stream.function for stream in consumers]
        self._runners = runners
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
        self._threads = [
            threading.Thread(target=self._run, args=consumer, name=f"stream-{consumer[0].function}")
            for consumer in consumers.items()
        ]
        engine.on_change(self._changed)

    def catch_up(self, name: str, seconds: float) -> None:
        """Wait until a consumer has handled what there is now; not longer than so many seconds."""
        end = self._engine.stream_end()
        with self._moved:
            self._moved.wait_for(lambda: self._position[name] >= end, seconds)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        self._changed()  # what an earlier run left behind

    def stop(self) -> None:
        """Hand over what is there, and end."""
        self._stopping.set()
        self._changed()
        for thread in self._threads:
            thread.join()

    def _changed(self) -> None:
        for wake in self._wake.values():
            wake.set()

    def _run(self, stream: Stream, handler: Handler) -> None:
        name = stream.function
        while True:
            # Another process may write to the same data, an import say, and cannot wake us.
            self._wake[name].wait(_POLL_SECONDS)
            self._wake[name].clear()
            try:
                while self._hand_over(stream, handler):
                    pass
            except Exception:  # with the next change or poll it is tried again
                log.exception("a consumer cannot read its stream", extra={"consumer": name})
            if self._stopping.is_set():
                return

    def _hand_over(self, stream: Stream, handler: Handler) -> bool:
        """Hand over one batch; whether there may be more."""
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
        self._engine.stream_advance(self._position)
        return True

    def _handle(self, stream: Stream, handler: Handler, batch: Sequence[_Delivery]) -> bool:
        """Whether the consumer has taken the batch. One that never skips a change may not have,
        when the server stops."""
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
                batch, attempt = batch[1:], 0
        return True


def _first_failure(handler: Handler, batch: Sequence[_Delivery]) -> int | None:
    """The index of the first change that the handler could not take."""
    records = [each.record for each in batch]
    try:
        failures = handler({"Records": records}, None)["batchItemFailures"]
    except Exception:
        log.exception("a stream handler failed")
        return 0
    failed = {failure["itemIdentifier"] for failure in failures}
    numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
    return next((index for index, number in enumerate(numbers) if number in failed), None)
