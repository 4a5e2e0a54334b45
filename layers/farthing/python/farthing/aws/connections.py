"""Clients behind API Gateway, reached through the @connections API.

One call takes one frame, and a frame has one event. To send events strictly newest first, each call
would have to wait for the one before. A call takes some ten milliseconds, so a hundred events would
take a second, and the largest answers more than the 29 seconds that API Gateway allows. So:

- Short answers go in order: the newest few events, which clients show first or page by.
- In longer answers, a group of a few frames goes in parallel. Only frames of one group can swap
  places, because each group waits for the one before.
- The handler returns EOSE after all frames were accepted, so EOSE is always last.

NIP-01 says that newer events should come first. EOSE tells a client that it has all events, and
`created_at` gives their order.

API Gateway refuses some posts although the client is not at fault: because of the account's rate
(429, under several names) or an error of its own (500). Such posts are repeated with growing
pauses. If they still fail, the outcome is `BUSY`, and the caller tries again later. No client is
disconnected for a 429. If the posts to one connection fail for another reason while others of the
same call succeed, the connection is broken and is closed.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import cached_property
from typing import Any

from farthing.ports.connections import Delivery, Frame, NumberedFrame

log = logging.getLogger("farthing")

_SIDE_BY_SIDE = 16
_IN_ORDER = 10  # longer answers are not sent in strict order
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 2.0
# Seconds for all attempts of one call together. A function has 29 seconds.
_PATIENCE = 6.0
# API Gateway takes no larger message in either direction.
_LARGEST_MESSAGE = 128 * 1024
_TOO_MANY_REQUESTS, _GONE, _TOO_LARGE, _SERVER_ERRORS = 429, 410, 413, 500


class _Post(Enum):
    """The outcome of one post."""

    TAKEN = Delivery.DELIVERED
    TOO_LARGE = Delivery.TOO_LARGE
    THROTTLED = Delivery.BUSY
    FAILED = "failed"
    GONE = Delivery.GONE


_WORST_LAST = list(_Post)
# After these outcomes, further frames of the connection are not tried.
_ENDS = (_Post.THROTTLED, _Post.FAILED, _Post.GONE)


def make_client(endpoint: str) -> Any:
    from botocore.config import Config
    from botocore.session import get_session

    config = Config(
        max_pool_connections=_SIDE_BY_SIDE,
        connect_timeout=2,
        read_timeout=5,
        # This module repeats calls itself. botocore's own attempts would wait without our
        # knowledge.
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    return get_session().create_client(
        "apigatewaymanagementapi", endpoint_url=endpoint, config=config
    )


class GatewayConnections:
    carries_replies = False
    frames_fail_alone = True

    def __init__(
        self,
        endpoint: str,
        *,
        client: Callable[[str], Any] = make_client,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._make_client = client
        self._sleep = sleep
        self._jitter = jitter
        self._clock = clock

    @cached_property
    def _client(self) -> Any:
        # Made with the first post: many calls answer with their return value alone.
        return self._make_client(self._endpoint)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="post")

    def post(self, connection_id: str, frames: Iterable[Frame]) -> Delivery:
        waiting, until = list(frames), self._clock() + _PATIENCE
        if len(waiting) <= _IN_ORDER:
            return _of_one(self._post_in_order(connection_id, waiting, until))
        worst = _Post.TAKEN
        while waiting and worst not in _ENDS:
            some, waiting = waiting[:_SIDE_BY_SIDE], waiting[_SIDE_BY_SIDE:]
            if len(some) == 1:
                posts = [self._post(connection_id, some[0], until)]
            else:
                under_way = [
                    self._pool.submit(self._post, connection_id, frame, until) for frame in some
                ]
                posts = [each.result() for each in under_way]
            worst = max([worst, *posts], key=_WORST_LAST.index)
        return _of_one(worst)

    def post_each(self, frames: Iterable[tuple[str, Frame]]) -> dict[str, Delivery]:
        queues: dict[str, list[Frame]] = {}
        for connection_id, frame in frames:
            queues.setdefault(connection_id, []).append(frame)
        until = self._clock() + _PATIENCE
        posts = self._pool.map(lambda id: self._post_in_order(id, queues[id], until), list(queues))
        outcomes = dict(zip(queues, posts, strict=True))
        # If no client could be reached, the fault is not this client's.
        others_succeed = any(post in (_Post.TAKEN, _Post.TOO_LARGE) for post in outcomes.values())
        failed = Delivery.SLOW if others_succeed else Delivery.BUSY
        return {
            connection_id: failed if post is _Post.FAILED else Delivery(post.value)
            for connection_id, post in outcomes.items()
            if post is not _Post.TAKEN
        }

    def post_in_order(
        self, connection_id: str, frames: Iterable[Frame], *, live: bool = False
    ) -> Delivery:
        del live  # this port never waits long for one client
        return _of_one(self._post_in_order(connection_id, frames, self._clock() + _PATIENCE))

    def _post_in_order(self, connection_id: str, frames: Iterable[Frame], until: float) -> _Post:
        worst = _Post.TAKEN
        for frame in frames:
            worst = max(worst, self._post(connection_id, frame, until), key=_WORST_LAST.index)
            if worst in _ENDS:
                break
        return worst

    def _post(self, connection_id: str, frame: Frame, until: float) -> _Post:
        written = frame.write() if isinstance(frame, NumberedFrame) else frame
        if written is None:
            return _Post.GONE
        data = written.encode() if isinstance(written, str) else written
        if len(data) > _LARGEST_MESSAGE:
            return _Post.TOO_LARGE
        wait = _FIRST_WAIT
        while True:
            try:
                self._client.post_to_connection(ConnectionId=connection_id, Data=data)
                return _Post.TAKEN
            except Exception as error:
                status = status_of(error)
                if status == _GONE:
                    return _Post.GONE
                if status == _TOO_LARGE:
                    return _Post.TOO_LARGE
                throttled = status == _TOO_MANY_REQUESTS
                may_pass = throttled or status >= _SERVER_ERRORS
                if not may_pass or self._clock() + wait > until:
                    if not throttled:
                        log.warning("a post failed", extra=_fields(status, error))
                    return _Post.THROTTLED if throttled else _Post.FAILED
            self._sleep(self._jitter() * wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def close(self, connection_id: str) -> None:
        """Close a connection. A failure is only logged: the caller could do nothing about it."""
        try:
            self._client.delete_connection(ConnectionId=connection_id)
        except Exception as error:
            if (status := status_of(error)) not in (_GONE, _TOO_MANY_REQUESTS):
                log.warning("a connection was not closed", extra=_fields(status, error))


def _fields(status: int, error: Exception) -> dict[str, object]:
    return {"status": status, "reason": str(error)}


def _of_one(post: _Post) -> Delivery:
    """The outcome for a single client. Without others to compare with, a failure may not be the
    client's fault."""
    return Delivery.BUSY if post is _Post.FAILED else Delivery(post.value)


# For answers without a status, or with a status that says less than the error's name.
_NAMED = {
    "GoneException": _GONE,
    "PayloadTooLargeException": _TOO_LARGE,
    "LimitExceededException": _TOO_MANY_REQUESTS,
    "ThrottlingException": _TOO_MANY_REQUESTS,
    "TooManyRequestsException": _TOO_MANY_REQUESTS,
}


def status_of(error: Exception) -> int:
    """The HTTP status of a refusal. A request that got no answer counts as a server's trouble."""
    response: dict[str, Any] | None = getattr(error, "response", None)
    if response is None:
        return _SERVER_ERRORS
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = response.get("Error", {}).get("Code", "")
    return int(
        status if status in (_GONE, _TOO_LARGE, _TOO_MANY_REQUESTS) else _NAMED.get(code, status)
    )
