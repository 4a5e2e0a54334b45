"""Clients behind API Gateway, reached through the @connections API.

One call takes one frame, and a frame holds one event. Newest first, strictly, would mean to wait
for each call before the next: some ten milliseconds each, so a second for a hundred events and
more than the 29 that API Gateway allows for the largest answers. So:

- Short answers go in order: the newest few, by which clients show or page something.
- In longer ones, a few frames at a time go side by side. Only those can swap places; each group
  waits for the one before, so no event comes more than a group too early or too late.
- EOSE is what the handler returns when all of them have been taken, so it is always the last.

NIP-01 says that newer events should come first. Clients learn from EOSE when they have them all,
and from `created_at` in which order they are.
"""

import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from farthing.ports.connections import Delivery, Frame, NumberedFrame

_SIDE_BY_SIDE = 16
_IN_ORDER = 10  # frames up to which order is worth the time
_ATTEMPTS = 5
_FIRST_WAIT = 0.05
# API Gateway takes no larger message in either direction.
_LARGEST_FRAME = 128 * 1024
_WORST_LAST = (Delivery.DELIVERED, Delivery.TOO_LARGE, Delivery.SLOW, Delivery.GONE)


def make_client(endpoint: str) -> Any:
    from botocore.config import Config
    from botocore.session import get_session

    config = Config(
        max_pool_connections=_SIDE_BY_SIDE,
        connect_timeout=2,
        read_timeout=5,
        retries={"total_max_attempts": 2, "mode": "standard"},
    )
    return get_session().create_client(
        "apigatewaymanagementapi", endpoint_url=endpoint, config=config
    )


class GatewayConnections:
    def __init__(
        self,
        endpoint: str,
        *,
        client: Callable[[str], Any] = make_client,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._endpoint = endpoint
        self._make_client = client
        self._sleep = sleep
        self._jitter = jitter

    @cached_property
    def _client(self) -> Any:
        # Made at the first post: many calls answer by their return value alone.
        return self._make_client(self._endpoint)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="post")

    def post(self, connection_id: str, frames: Iterable[Frame]) -> Delivery:
        waiting = list(frames)
        if len(waiting) <= _IN_ORDER:
            return self.post_in_order(connection_id, waiting)
        worst = Delivery.DELIVERED
        while waiting and worst not in (Delivery.GONE, Delivery.SLOW):
            some, waiting = waiting[:_SIDE_BY_SIDE], waiting[_SIDE_BY_SIDE:]
            if len(some) == 1:
                deliveries = [self._post(connection_id, some[0])]
            else:
                posts = [self._pool.submit(self._post, connection_id, frame) for frame in some]
                deliveries = [post.result() for post in posts]
            worst = max([worst, *deliveries], key=_WORST_LAST.index)
        return worst

    def post_each(self, frames: Iterable[tuple[str, Frame]]) -> dict[str, Delivery]:
        queues: dict[str, list[Frame]] = {}
        for connection_id, frame in frames:
            queues.setdefault(connection_id, []).append(frame)
        deliveries = self._pool.map(self.post_in_order, queues.keys(), queues.values())
        return {
            connection_id: delivery
            for connection_id, delivery in zip(queues, deliveries, strict=True)
            if delivery is not Delivery.DELIVERED
        }

    def post_in_order(
        self, connection_id: str, frames: Iterable[Frame], *, live: bool = False
    ) -> Delivery:
        del live  # nobody is waited for at length here
        worst = Delivery.DELIVERED
        for frame in frames:
            worst = max(worst, self._post(connection_id, frame), key=_WORST_LAST.index)
            if worst in (Delivery.GONE, Delivery.SLOW):
                break
        return worst

    def _post(self, connection_id: str, frame: Frame) -> Delivery:
        written = frame.write() if isinstance(frame, NumberedFrame) else frame
        if written is None:
            return Delivery.GONE
        data = written.encode() if isinstance(written, str) else written
        if len(data) > _LARGEST_FRAME:
            return Delivery.TOO_LARGE
        for attempt in range(_ATTEMPTS):
            try:
                self._client.post_to_connection(ConnectionId=connection_id, Data=data)
                return Delivery.DELIVERED
            except Exception as error:
                match error_code(error):
                    case "GoneException":
                        return Delivery.GONE
                    case "PayloadTooLargeException":
                        return Delivery.TOO_LARGE
                    case "LimitExceededException" | "ThrottlingException":
                        if attempt < _ATTEMPTS - 1:
                            self._sleep(self._jitter() * _FIRST_WAIT * 2**attempt)
                    case _:
                        raise
        return Delivery.SLOW

    def close(self, connection_id: str) -> None:
        try:
            self._client.delete_connection(ConnectionId=connection_id)
        except Exception as error:
            if error_code(error) not in ("GoneException", "LimitExceededException"):
                raise


def error_code(error: Exception) -> str:
    response: dict[str, Any] = getattr(error, "response", None) or {}
    code: str = response.get("Error", {}).get("Code", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return {410: "GoneException", 413: "PayloadTooLargeException"}.get(status, code)
