"""Large requests do not take the threads that small ones need."""

import threading
from collections.abc import Callable, Iterator

import pytest

from infra.local.server.slow_lane import RUNNING, LocalSlowLane
from infra.local.server.workers import Workers

_SECONDS = 20.0  # that anything here is waited for


class _Here:
    def put(self, call: Callable[[], None]) -> None:
        call()


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(2, _Here(), spare=5)  # type: ignore[arg-type]
    yield made
    made.stop()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_small_jobs_run_while_large_ones_have_every_place(
    workers: Workers, release: threading.Event
) -> None:
    lane = LocalSlowLane(workers)
    entered = threading.Semaphore(0)
    outcomes: list[bool] = []

    def large() -> bool:
        if not lane.enter(_SECONDS):
            return False
        entered.release()
        release.wait(_SECONDS)
        lane.leave()
        return True

    done = threading.Semaphore(0)

    def note(result: bool) -> None:
        outcomes.append(result)
        done.release()

    for _ in range(9):
        workers.submit(large, note)
    for _ in range(RUNNING):
        assert entered.acquire(timeout=_SECONDS)
    for _ in range(4):  # those for whom there is no place, not even to wait
        assert done.acquire(timeout=_SECONDS)
    assert outcomes == [False] * 4

    small = threading.Event()
    workers.submit(lambda: None, lambda _: small.set())
    assert small.wait(_SECONDS)

    assert not entered.acquire(blocking=False)  # others wait for their turn
    release.set()
    for _ in range(5):
        assert done.acquire(timeout=_SECONDS)
    assert outcomes == [False] * 4 + [True] * 5


def test_a_place_is_there_again_for_the_next(workers: Workers) -> None:
    lane = LocalSlowLane(workers)
    done: list[bool] = []
    finished = threading.Semaphore(0)

    def large() -> bool:
        try:
            return lane.enter(_SECONDS)
        finally:
            lane.leave()

    for _ in range(20):
        workers.submit(large, lambda result: (done.append(result), finished.release()))
        assert finished.acquire(timeout=_SECONDS)

    assert done == [True] * 20


def test_a_full_lane_refuses_until_one_leaves(workers: Workers) -> None:
    lane = LocalSlowLane(workers)
    for _ in range(RUNNING):
        assert lane.enter(0)

    assert not lane.enter(0)
    lane.leave()
    assert lane.enter(0)
