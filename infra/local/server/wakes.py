"""Wakes of paid subscriptions on one machine: a queue in the process, in front of the function that
takes the queue's messages in the cloud.

Each subscription is served by one call at a time. Subscriptions that were not served before the
process ended are woken at the next start.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from farthing.ports.wakes import write_wake
from infra.local.server.workers import Mailbox
from infra.local.server.write_scheduler import WriteScheduler

log = logging.getLogger("farthing")

_MOST_AT_ONCE = 128
_ATTEMPTS = 5

Key = tuple[str, str]
Handler = Callable[[dict[str, Any], object], Any]


class LocalWakes:
    """`wake` may be called in any thread. Everything else happens in the event loop."""

    def __init__(self, scheduler: WriteScheduler, mailbox: Mailbox) -> None:
        self._scheduler = scheduler
        self._mailbox = mailbox
        self._handler: Handler | None = None
        self._waiting: deque[Key] = deque()
        self._known: set[Key] = set()  # the keys that wait
        self._served: dict[Key, bool] = {}  # keys under way, and whether to wake them again
        self._failures: dict[Key, int] = {}
        self._is_stopping = False

    def start(self, handler: Handler) -> None:
        self._handler = handler
        self._begin()

    def stop(self) -> None:
        self._is_stopping = True
        self._waiting.clear()

    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        self._mailbox.put(lambda: self._take((owner, subscription_id), delay))

    def _take(self, key: Key, delay: float) -> None:
        if self._is_stopping:
            return
        if delay > 0:
            asyncio.get_running_loop().call_later(delay, self._take, key, 0.0)
        elif key in self._served:
            self._served[key] = True
        elif key not in self._known:
            self._known.add(key)
            self._waiting.append(key)
            self._begin()

    def _begin(self) -> None:
        while self._handler is not None and self._waiting and len(self._served) < _MOST_AT_ONCE:
            self._serve(self._waiting.popleft(), self._handler)

    def _serve(self, key: Key, handler: Handler) -> None:
        self._known.discard(key)
        self._served[key] = False
        event = {"Records": [{"body": write_wake(*key)}]}
        self._scheduler.submit(lambda: handler(event, None), lambda result: self._done(key, result))

    def _done(self, key: Key, result: Any) -> None:
        again = self._served.pop(key)
        if result is None:  # the call failed; the scheduler has logged the error
            failures = self._failures.get(key, 0) + 1
            self._failures[key] = failures
            if failures < _ATTEMPTS:
                self._take(key, float(2**failures))
            else:
                log.error(
                    "a paid subscription could not be served, and waits for its next wake",
                    extra={"owner": key[0], "subscription": key[1]},
                )
                self._failures.pop(key)
        else:
            self._failures.pop(key, None)
        if again:
            self._take(key, 0.0)
        self._begin()
