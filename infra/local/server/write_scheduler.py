"""Runs handlers that write, many of them in one thread. Each runs until it waits for a commit. Then
one commit in a second thread serves all that wait, while the first thread runs the next handlers.
Reads of handlers that run together are combined in the same way. While events come one at a time,
the first thread commits as well.

Handlers are plain synchronous code, as in Lambda. With a thread for each handler, passing the
interpreter lock around would cost more than the work; switching greenlets costs next to nothing.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

from farthing.store.table import StoreError
from infra.local.server.workers import Mailbox

log = logging.getLogger("farthing")

# Handlers that start before the next commit: more make larger commits and later answers.
_MOST_AT_ONCE = 64
_SMALL_GROUP = 16
# Greenlets that wait for a handler to run.
_MOST_IDLE = 1024


# What a call returned, or what it raised.
Outcome = tuple[Any, Exception | None]


class Waiting(NamedTuple):
    handler: greenlet
    commit: Callable[[], None]  # commits for this caller and all that were parked before


class WriteScheduler:
    def __init__(self, mailbox: Mailbox, *, hurried: bool = True) -> None:
        """With `hurried`, callers get their commits soon. Otherwise there are as few commits as
        possible."""
        self._mailbox = mailbox
        self._hurried = hurried
        # Each entry switches to a handler: to a new one, or back to one whose wait is over.
        self._ready: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._parked: list[Waiting] = []
        self._gathered: list[greenlet] = []
        self._idle: list[greenlet] = []
        # The callers that wait for the running commit.
        self._committing: list[Waiting] = []
        self._commits: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._outside = 0
        self._stopping = False
        # Whether no handler began during the last commit. Then the next one is made in the first
        # thread: waking the second, and being woken by it, would take as long.
        self._is_calm = False
        # Whether `tell` has still to be called for a commit (see `tell_after_answers`).
        self._untold = False
        self._tell: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._committer = threading.Thread(target=self._run_commits, name="committer", daemon=True)
        self._committer.start()
        self._thread.start()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run `work` here, then `done` with its result (None if it failed) in the event loop."""
        self._ready.put(partial(self._begin, work, done))

    def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` here and wait for its result or exception. For other threads."""
        outcome: SimpleQueue[Outcome] = SimpleQueue()
        self._ready.put(lambda: greenlet(lambda: outcome.put(_outcome_of(work))).switch())
        value, error = outcome.get()
        if error is not None:
            raise error
        return value

    def run_all(self, works: Sequence[Callable[[], Any]]) -> None:
        """Run all of them and wait. Must not be called in the loop's thread."""
        left = threading.Semaphore(0)
        for work in works:
            self.submit(work, lambda _result: left.release())
        for _ in works:
            left.acquire()

    def run_together(self, works: Sequence[Callable[[], None]]) -> None:
        """Run all of them before anything else, so that their writes share commits, and wait."""
        left = threading.Semaphore(0)

        def begin() -> None:
            for work in works:
                self._begin(work, lambda _result: left.release())

        self._ready.put(begin)
        for _ in works:
            left.acquire()

    def stop(self) -> None:
        """Finish the queued work, and stop."""
        self._ready.put(None)
        self._thread.join()
        self._commits.put(None)
        self._committer.join()

    def is_inside(self) -> bool:
        """Whether the caller is a handler that the scheduler runs."""
        return threading.current_thread() is self._thread and getcurrent() is not self._main

    def park(self, commit: Callable[[], None]) -> None:
        """Wait, inside a handler, until `commit` has been called (see
        `store.sqlite_file.Parking`)."""
        self._parked.append(Waiting(getcurrent(), commit))
        self._main.switch()

    def gather(self, read: Callable[[], None]) -> None:
        """Wait, inside a handler, until all other handlers that can run are waiting too, and `read`
        has been called, once for all that gathered (see `store.sqlite_file.Parking`)."""
        self._gathered.append(getcurrent())
        self._read = read
        self._main.switch()

    def wait_outside(self, start: Callable[[Callable[[Outcome], None]], None]) -> Any:
        """Wait, inside a handler, for work in another thread, such as a request. `start` begins the
        work, and any thread passes on its outcome at the end."""
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

    def tell_after_answers(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Returns a function for threads to call when they have committed. `tell` then runs in the
        event loop. If the scheduler made the commit, the answers of its handlers come first."""
        self._tell = tell

        def committed() -> None:
            if threading.current_thread() in (self._committer, self._thread):
                self._untold = True
            else:
                self._mailbox.put(tell)

        return committed

    def _run(self) -> None:
        self._main = getcurrent()
        while self._busy or self._outside or not self._stopping:
            for switch in self._take():
                switch()
            while self._gathered:
                self._read_for_all()
            if self._parked and not self._committing:
                group = len(self._parked)
                if self._hurried:
                    group = _group_size(group)
                self._committing, self._parked = self._parked[:group], self._parked[group:]
                commit = self._committing[-1].commit
                if self._is_calm and self._ready.empty():
                    self._commit(commit)
                    self._is_calm = self._ready.empty()
                    self._ready.put(self._resume)
                else:
                    self._is_calm = True
                    self._commits.put(commit)
        self._idle.clear()  # here, in the thread that runs the greenlets

    def _read_for_all(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._read()
        for handler in gathered:
            handler.switch()

    @property
    def _busy(self) -> bool:
        return bool(self._parked or self._committing)

    def _run_commits(self) -> None:
        """Run the commits, one at a time. Callers that come during a commit wait for the next
        one."""
        while (commit := self._commits.get()) is not None:
            self._commit(commit)
            self._ready.put(self._resume)

    @staticmethod
    def _commit(commit: Callable[[], None]) -> None:
        try:
            commit()
        except StoreError:
            pass  # every waiting caller finds the error in its transaction
        except Exception:
            log.exception("a commit failed")

    def _resume(self) -> None:
        committed, self._committing = self._committing, []
        for waiting in committed:
            waiting.handler.switch()
        if self._untold:
            self._untold = False
            self._mailbox.put(self._tell)

    def _take(self) -> list[Callable[[], object]]:
        """The handlers that can run. Blocks if there is nothing else to do."""
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

    def _begin(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        if self._committing:
            self._is_calm = False
        handler = self._idle.pop() if self._idle else greenlet(self._work)
        handler.switch(work, done)

    def _work(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run one handler after another, because a new greenlet would need a stack of its own."""
        while True:
            result, error = _outcome_of(work)
            if error is not None:
                log.error("a handler failed", exc_info=error)
            self._mailbox.put(partial(done, result))
            if len(self._idle) >= _MOST_IDLE:
                return
            self._idle.append(getcurrent())
            result = error = None
            del work, done
            work, done = self._main.switch()


def _group_size(waiting: int) -> int:
    """The number of callers of the next commit. If it always took all waiting callers, they would
    continue all at once. Then no handler would be left to run during the commit, and nothing to
    commit after it."""
    return min(waiting, max(_SMALL_GROUP, (waiting + 1) // 2))


def _outcome_of(work: Callable[[], Any]) -> Outcome:
    try:
        return work(), None
    except Exception as error:
        return None, error
