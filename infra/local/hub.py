"""One thread that runs many handlers at once, for writes: each runs until it waits for a commit,
and then one commit serves all of them.

Handlers are plain synchronous code, as in Lambda. A thread for each would spend more time on
handing the interpreter around than on work; greenlets switch for next to nothing.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from greenlet import getcurrent, greenlet

from infra.local.workers import Job, Mailbox

log = logging.getLogger("farthing")

# Handlers started before the next commit: more make larger commits, and later answers.
_MOST_AT_ONCE = 256


class Hub:
    """`commit` makes durable what the parked handlers have written."""

    def __init__(self, commit: Callable[[], None], mailbox: Mailbox) -> None:
        self._commit = commit
        self._mailbox = mailbox
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._parked: list[greenlet] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `work` in the hub, then `done` with its result (None if it failed) in the loop."""
        self._jobs.put((work, done))

    def run_all(self, works: Sequence[Callable[[], Any]]) -> None:
        """Run them all and wait; from another thread than the loop's."""
        left = threading.Semaphore(0)
        for work in works:
            self.submit(work, lambda _result: left.release())
        for _ in works:
            left.acquire()

    def stop(self) -> None:
        """Finish what is queued, and end."""
        self._jobs.put(None)
        self._thread.join()

    def is_inside(self) -> bool:
        """Whether the caller is a handler that the hub runs."""
        return threading.current_thread() is self._thread and getcurrent() is not self._main

    def park(self) -> None:
        """Wait, inside a handler, for the next commit."""
        self._parked.append(getcurrent())
        self._main.switch()

    def _run(self) -> None:
        self._main = getcurrent()
        while self._parked or not self._stopping:
            for job in self._take():
                greenlet(self._work).switch(*job)
            parked, self._parked = self._parked, []
            if parked:
                self._commit()
            for handler in parked:
                handler.switch()

    def _take(self) -> list[Job]:
        """What there is to start. Blocks only when nothing else is under way."""
        jobs: list[Job] = []
        try:
            while len(jobs) < _MOST_AT_ONCE:
                job = self._jobs.get(block=not (jobs or self._parked or self._stopping))
                if job is None:
                    self._stopping = True
                else:
                    jobs.append(job)
        except Empty:
            pass
        return jobs

    def _work(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = work()
        except Exception:
            log.exception("a handler failed")
            result = None
        self._mailbox.put(lambda: done(result))
