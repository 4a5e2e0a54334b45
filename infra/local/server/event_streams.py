"""Event streams that stay open: on one machine `GET /v1/stream` sends events as they are numbered.

All streams that have caught up read from one tail of the log, which is read once for all of them. A
client that does not keep up falls behind the tail and then reads the log by itself: nothing waits
for it in memory.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from farthing.aether import sse
from farthing.aether.errors import AetherError
from farthing.aether.events import Event
from farthing.aether.filters import Filter
from farthing.context import Agent
from farthing.handlers.aether_web import (
    RETRY_MILLISECONDS,
    StreamRequest,
    parse_stream_request,
    stream_response,
)
from farthing.relay.aether.streams import Batch, filters_of, find_subscription, read_log
from farthing.store.spaces import AETHER
from infra.local.server.workers import Mailbox, Workers

HEARTBEAT_SECONDS = 15.0
# What the tail holds at most: events, and characters of them.
_MOST_EVENTS = 1000
_MOST_CHARACTERS = 4_000_000

_EVERYTHING = (Filter(),)


class _Numbered(NamedTuple):
    number: int
    event: Event
    json: str


class EventStreams:
    def __init__(self, agent: Agent, workers: Workers, mailbox: Mailbox) -> None:
        self._agent = agent
        self._workers = workers
        self._mailbox = mailbox
        self._tail: deque[_Numbered] = deque()
        self._characters = 0
        self._start = self._end = agent.kept(AETHER).changes.last_number()
        self._new = asyncio.Event()
        self._moved = asyncio.Event()
        self._stopping = False
        self._follower = asyncio.create_task(self._follow())

    def notify(self) -> None:
        """The log may have grown; from any thread."""
        self._mailbox.put(self._new.set)

    def stop(self) -> None:
        """End all streams. Their clients come back."""
        self._stopping = True
        self._follower.cancel()
        self._moved.set()

    async def serve(
        self, request: web.BaseRequest, event: dict[str, Any]
    ) -> web.StreamResponse | None:
        """Answer until the client leaves. None for a request that gets an ordinary answer."""
        wanted = await self._workers.run(lambda: self._wanted(event))
        if wanted is None:
            return None
        response = web.StreamResponse(headers=stream_response()["headers"])
        await response.prepare(request)
        await response.write(sse.retry(RETRY_MILLISECONDS).encode())
        await self._stream(wanted, response)
        return response

    def _wanted(self, event: dict[str, Any]) -> StreamRequest | None:
        try:
            return parse_stream_request(self._agent, event)
        except AetherError:
            return None  # the handler says why

    async def _stream(self, wanted: StreamRequest, response: web.StreamResponse) -> None:
        # A position that the log has not reached is one of another log.
        sub_id, position = wanted.subscription.id, min(wanted.after, self._end)
        filters = filters_of(wanted.subscription)
        while not self._stopping:
            events, end = await self._after(filters, position)
            frames = [sse.event(number, sub_id, json) for number, json in events]
            if end > position:
                # Also where nothing matched: who comes back need not read all this again.
                position = end
                frames.append(sse.position(end))
            if frames:
                await response.write("".join(frames).encode())
            if position >= self._end and not await self._has_moved():
                if not await self._workers.run(lambda: self._is_open(sub_id)):
                    return
                await response.write(sse.heartbeat().encode())

    async def _after(
        self, filters: Sequence[Filter], position: int
    ) -> tuple[Sequence[tuple[int, str]], int]:
        """The matching events after a position, and how far the log was read."""
        if position >= self._start:
            found = [
                (each.number, each.json)
                for each in self._tail
                if each.number > position and any(one.matches(each.event) for one in filters)
            ]
            return found, self._end
        batch = await self._workers.run(lambda: read_log(self._agent, filters, position))
        return (batch.events, batch.end) if batch is not None else ((), position)

    async def _has_moved(self) -> bool:
        moved = self._moved
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await moved.wait()
        except TimeoutError:
            return False
        return True

    def _is_open(self, sub_id: str) -> bool:
        try:
            find_subscription(self._agent, sub_id)
        except AetherError:
            return False
        return True

    async def _follow(self) -> None:
        """Keep the tail at the end of the log."""
        while True:
            await self._new.wait()
            self._new.clear()
            while not self._take(await self._workers.run(self._read)):
                pass  # there is more
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()

    def _read(self) -> tuple[list[_Numbered], Batch]:
        batch = read_log(self._agent, _EVERYTHING, self._end)
        return [_Numbered(number, AETHER.parse(json), json) for number, json in batch.events], batch

    def _take(self, new: tuple[list[_Numbered], Batch] | None) -> bool:
        """Add to the tail what was read; whether that was all. None is a read that failed: it is
        made again with the next notice."""
        if new is None:
            return True
        events, batch = new
        self._tail.extend(events)
        self._characters += sum(len(each.json) for each in events)
        while len(self._tail) > _MOST_EVENTS or self._characters > _MOST_CHARACTERS:
            gone = self._tail.popleft()
            self._characters -= len(gone.json)
            self._start = gone.number
        self._end = batch.end
        return batch.is_last


def notifying(
    handler: Callable[[dict[str, Any], object], dict[str, Any]], notify: Callable[[], None]
) -> Callable[[dict[str, Any], object], dict[str, Any]]:
    """A consumer of the log's stream that tells the event streams as well."""

    def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
        prefix = f"{AETHER.prefix}log#"
        keys = (record["dynamodb"]["Keys"]["pk"]["S"] for record in event["Records"])
        if any(key.startswith(prefix) for key in keys):
            notify()
        return handler(event, context)

    return handle
