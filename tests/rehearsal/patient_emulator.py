"""MiniStack, with one change: a function that is updated lets the calls finish that are under way.

So does Lambda. As it is, the emulator kills the processes of these calls, and its API Gateway
answers 502.

Run by the emulator's own Python, which has nothing of ours.
"""

import runpy
import threading
import time
from collections.abc import Sequence
from typing import Any

from ministack.core import lambda_runtime

_CALL_SECONDS = 300
_kill = lambda_runtime.kill_workers


def _kill_when_idle(workers: Sequence[Any]) -> None:
    """Aside: the emulator serves nobody else while it waits for a process to end. The workers are
    out of the pool already, so no other call gets them."""
    for worker in workers:
        if worker is not None:
            threading.Thread(target=_wait_and_kill, args=[worker], daemon=True).start()


def _wait_and_kill(worker: Any) -> None:
    until = time.monotonic() + _CALL_SECONDS
    while worker.in_use and time.monotonic() < until:
        time.sleep(0.05)
    _kill([worker])


if __name__ == "__main__":
    lambda_runtime.kill_workers = _kill_when_idle
    runpy.run_module("ministack", run_name="__main__", alter_sys=True)
