"""Runs handlers that write, many of them in one thread. Each runs until it waits for a commit. Then
one commit in a second thread serves all that wait, while the first thread runs the next handlers.
Reads of handlers that run together are combined in the same way.

Handlers are plain synchronous code, as in Lambda. With a thread for each handler, passing the
interpreter lock around would cost more than the work; switching greenlets costs next to nothing.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

from farthing.store.table import StoreError
from infra.local.server.workers import Mailbox

log = logging.getLogger("farthing")

# Handlers that start before the next commit: more make larger commits and later answers.
_MOST_AT_ONCE = 64
_SMALL_GROUP = 16


# What a call returned, or what it raised.
Outcome = tuple[Any, Exception | None]


class Waiting(NamedTuple):
    handler: greenlet
    commit: Callable[[], None]  # serves this one and all that were parked before


class WriteScheduler:
    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        # Each switches to a handler: to a new one, or back to one whose wait is over.
        self._ready: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._parked: list[Waiting] = []
        self._gathered: list[greenlet] = []
        # Those who wait for the commit that is under way.
        self._committing: list[Waiting] = []
        self._commits: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._outside = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._committer = threading.Thread(target=self._run_commits, name="committer", daemon=True)
        self._committer.start()
        self._thread.start()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run `work` here, then `done` with its result (None if it failed) in the event loop."""
        self._ready.put(lambda: greenlet(self._work).switch(work, done))

    def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` here and wait for what it returns or raises; for other threads."""
        outcome: SimpleQueue[Outcome] = SimpleQueue()
        self._ready.put(lambda: greenlet(lambda: outcome.put(_outcome_of(work))).switch())
        value, error = outcome.get()
        if error is not None:
            raise error
        return value

    def run_all(self, works: Sequence[Callable[[], Any]]) -> None:
        """Run them all and wait; from another thread than the loop's."""
        left = threading.Semaphore(0)
        for work in works:
            self.submit(work, lambda _result: left.release())
        for _ in works:
            left.acquire()

    def stop(self) -> None:
        """Finish what is queued, and end."""
        self._ready.put(None)
        self._thread.join()
        self._commits.put(None)
        self._committer.join()

    def is_inside(self) -> bool:
        """Whether the caller is a handler that the scheduler runs."""
        return threading.current_thread() is self._thread and getcurrent() is not self._main

    def park(self, commit: Callable[[], None]) -> None:
        """Wait, inside a handler, until this has been called (see `store.sqlite_file.Parking`)."""
        self._parked.append(Waiting(getcurrent(), commit))
        self._main.switch()

    def gather(self, read: Callable[[], None]) -> None:
        """Wait, inside a handler, until the others that can go on have come as far, and this has
        been called, once for all who gathered (see `store.sqlite_file.Parking`)."""
        self._gathered.append(getcurrent())
        self._read = read
        self._main.switch()

    def wait_outside(self, start: Callable[[Callable[[Outcome], None]], None]) -> Any:
        """Wait, inside a handler, for something that goes on elsewhere, a request say. `start`
        begins it, and hands its outcome over in the end, from whatever thread."""
        handler, outcomes = getcurrent(), list[Outcome]()
        self._outside += 1

        def resume(outcome: Outcome) -> None:
            outcomes.append(outcome)
            self._ready.put(handler.switch)

        start(resume)
        self._main.switch()
        self._outside -= 1
        value, error = outcomes[0]
        if error is not None:
            raise error
        return value

    def _run(self) -> None:
        self._main = getcurrent()
        while self._busy or self._outside or not self._stopping:
            for switch in self._take():
                switch()
            while self._gathered:
                self._read_for_all()
            if self._parked and not self._committing:
                group = _group_size(len(self._parked))
                self._committing, self._parked = self._parked[:group], self._parked[group:]
                self._commits.put(self._committing[-1].commit)

    def _read_for_all(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._read()
        for handler in gathered:
            handler.switch()

    @property
    def _busy(self) -> bool:
        return bool(self._parked or self._committing)

    def _run_commits(self) -> None:
        """One at a time. What comes while one is under way waits for the next."""
        while (commit := self._commits.get()) is not None:
            try:
                commit()
            except StoreError:
                pass  # each who waits finds it in what it wrote
            except Exception:
                log.exception("a commit failed")
            self._ready.put(self._resume)

    def _resume(self) -> None:
        committed, self._committing = self._committing, []
        for waiting in committed:
            waiting.handler.switch()

    def _take(self) -> list[Callable[[], object]]:
        """Which handlers can go on. Blocks where there is nothing else to do."""
        ready: list[Callable[[], object]] = []
        try:
            while len(ready) < _MOST_AT_ONCE:
                switch = self._ready.get(block=not ready and self._must_wait)
                if switch is None:
                    self._stopping = True
                else:
                    ready.append(switch)
        except Empty:
            pass
        return ready

    @property
    def _must_wait(self) -> bool:
        if self._committing:
            return True
        return not self._parked and bool(self._outside or not self._stopping)

    def _work(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        result, error = _outcome_of(work)
        if error is not None:
            log.error("a handler failed", exc_info=error)
        self._mailbox.put(lambda: done(result))


def _group_size(waiting: int) -> int:
    """For how many the next commit is. If it were always for all who wait, they would come back
    all at once: then nobody is left to run while it is under way, and nothing to commit after."""
    return min(waiting, max(_SMALL_GROUP, (waiting + 1) // 2))


def _outcome_of(work: Callable[[], Any]) -> Outcome:
    try:
        return work(), None
    except Exception as error:
        return None, error
