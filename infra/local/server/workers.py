"""Threads that run handlers, as Lambda's containers do, and pass results to the event loop.

This pool wakes the loop once for the results of many calls. An executor's futures would wake it for
each.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

log = logging.getLogger("farthing")

Job = tuple[Callable[[], Any], Callable[[Any], object]]


class Mailbox(Protocol):
    def put(self, call: Callable[[], object]) -> None: ...


class OwnMailbox(Mailbox, Protocol):
    """A mailbox that knows the thread of its owner."""

    def is_inside(self) -> bool:
        """Whether the caller runs in the event loop's thread."""
        ...


class LoopMailbox:
    """Calls for the event loop from other threads, many for one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._awake = False
        self._mutex = threading.Lock()
        self._thread = threading.get_ident()

    def is_inside(self) -> bool:
        return threading.get_ident() == self._thread

    def put(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        with self._mutex:
            if self._awake:
                return
            self._awake = True
        # A loop that has stopped takes no more mail.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._mutex:
            self._awake = False
        while self._calls:
            self._calls.popleft()()


class Runner(Protocol):
    def submit(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None: ...


async def run_in(runner: Runner, work: Callable[[], Any]) -> Any:
    """Run `work` in a runner, and wait for the result."""
    finished: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any) -> None:
        if not finished.done():
            finished.set_result(result)

    runner.submit(work, done)
    return await finished


class _Aside(threading.local):
    """Whether the job that a thread runs has stepped aside."""

    is_set = False


class Workers:
    """A number of threads that run jobs. A job may step aside: it goes on in its thread, and a
    spare thread takes the place of that thread until the job is done."""

    def __init__(self, number: int, mailbox: LoopMailbox, spare: int = 0) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._mailbox = mailbox
        self._turns = threading.Semaphore(number)
        self._spare = threading.Semaphore(spare)
        self._aside = _Aside()
        self._threads = [
            threading.Thread(target=self._work, name=f"handler-{index}", daemon=True)
            for index in range(number + spare)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run `work` in a thread, then `done` with its result (None if it failed) in the loop."""
        self._jobs.put((work, done))

    async def run(self, work: Callable[[], Any]) -> Any:
        return await run_in(self, work)

    def step_aside(self) -> bool:
        """Let a spare thread take the caller's place until the caller's job is done. Returns False
        if no spare thread is free."""
        if threading.current_thread() not in self._threads or self._aside.is_set:
            return True
        if not self._spare.acquire(blocking=False):
            return False
        self._aside.is_set = True
        self._turns.release()
        return True

    def _work(self) -> None:
        while True:
            self._turns.acquire()
            self._aside.is_set = False
            job = self._jobs.get()
            if job is not None:
                self._run(*job)
            if self._aside.is_set:
                self._spare.release()
            else:
                self._turns.release()
            if job is None:
                return

    def _run(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        try:
            result = work()
        except Exception:
            log.exception("a handler failed")
            result = None
        self._mailbox.put(lambda: done(result))

    def stop(self) -> None:
        """Finish the queued jobs, and end the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
