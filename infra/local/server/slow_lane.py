"""The slow lane of the local server: few large requests run at a time, and those that wait do not
hold up the threads that small requests need."""

import threading

from infra.local.server.workers import Workers

RUNNING = 2


class LocalSlowLane:
    """See `ports.slow_lane`. A thread that enters lets a spare one take its place among the
    workers. There are as many places, for those who run and those who wait, as there are spare
    threads."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._turns = threading.BoundedSemaphore(RUNNING)

    def enter(self, seconds: float) -> bool:
        return self._workers.step_aside() and self._turns.acquire(timeout=seconds)

    def leave(self) -> None:
        self._turns.release()
