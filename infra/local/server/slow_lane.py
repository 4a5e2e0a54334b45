"""The slow lane of the local server: few large requests run at a time, and the waiting ones do not
occupy the threads that small requests need."""

import threading

from infra.local.server.workers import Workers

RUNNING = 2


class LocalSlowLane:
    """See `ports.slow_lane`. When a thread enters, a spare thread takes its place among the
    workers. So at most as many requests run or wait here as there are spare threads."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._turns = threading.BoundedSemaphore(RUNNING)

    def enter(self, seconds: float) -> bool:
        return self._workers.step_aside() and self._turns.acquire(timeout=seconds)

    def leave(self) -> None:
        self._turns.release()
