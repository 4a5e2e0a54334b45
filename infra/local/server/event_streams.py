"""Event streams that stay open: on one machine `GET /v1/stream` sends events as they are numbered.

All streams that have caught up read from one tail of the log, which is read once for all of them. A
client that does not keep up falls behind the tail and then reads the log by itself: only one write
waits for it in memory, and not for long.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from farthing.store.streams import parse_record
from infra.local.server.workers import Mailbox, Workers

HEARTBEAT_SECONDS = 15.0
# The limits of the tail: events, and their characters.
_MOST_EVENTS = 1000
_MOST_CHARACTERS = 4_000_000
# Characters of events in one write. Each stream whose client does not read holds one write.
_MOST_AT_ONCE = 64 * 1024
# Streams behind the tail that read the log at a time: they must not take all threads from others.
_MOST_READING = 2
# A client that takes longer to read one write is disconnected.
_PATIENCE_SECONDS = 30.0

_EVERYTHING = (Filter(),)


class _Numbered(NamedTuple):
    number: int
    event: Event
    json: str


class _Stream:
    """One open answer."""

    def __init__(self, request: StreamRequest) -> None:
        self.id = request.subscription.id
        self.filters = filters_of(request.subscription)
        self.after = request.after
        self.has_ended = False  # the client has ended the subscription


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
        self._reading = asyncio.Semaphore(_MOST_READING)
        self._open: defaultdict[str, set[_Stream]] = defaultdict(set)
        self._follower = asyncio.create_task(self._follow())

    def notify(self) -> None:
        """Tell the streams that the log may have grown. Any thread may call this."""
        self._mailbox.put(self._new.set)

    def stop(self) -> None:
        """End all streams. Their clients connect again."""
        self._stopping = True
        self._follower.cancel()
        self._wake()

    def end(self, sub_id: str) -> None:
        """End the streams of a subscription that is gone. Called in the loop's thread."""
        for stream in self._open.get(sub_id, ()):
            stream.has_ended = True
        self._wake()

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
        stream = _Stream(wanted)
        self._open[stream.id].add(stream)
        try:
            await self._send(stream, response)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._open[stream.id].remove(stream)
            if not self._open[stream.id]:
                del self._open[stream.id]
        return response

    def _wanted(self, event: dict[str, Any]) -> StreamRequest | None:
        try:
            return parse_stream_request(self._agent, event)
        except AetherError:
            return None  # the handler refuses the request

    async def _send(self, stream: _Stream, response: web.StreamResponse) -> None:
        # A position beyond the end belongs to another log.
        position = min(stream.after, self._end)
        now = asyncio.get_running_loop().time
        heartbeat = now() + HEARTBEAT_SECONDS
        while not (self._stopping or stream.has_ended):
            events, end = await self._after(stream.filters, position)
            frames = [sse.event(number, stream.id, json) for number, json in events]
            if end > position:
                # Also if nothing matched: a client that connects again need not read this part
                # again.
                position = end
                frames.append(sse.position(end))
            if frames:
                await _write(response, "".join(frames))
            # The stream may have to end since its last look.
            if position >= self._end and not (self._stopping or stream.has_ended):
                await self._wait_for_more(heartbeat)
            # Also if the log never rests: the look at the subscription prolongs its life.
            if now() >= heartbeat:
                if not await self._workers.run(lambda: self._is_open(stream.id)):
                    return
                await _write(response, sse.heartbeat())
                heartbeat = now() + HEARTBEAT_SECONDS

    async def _after(
        self, filters: Sequence[Filter], position: int
    ) -> tuple[Sequence[tuple[int, str]], int]:
        """The matching events after a position, and how far the log was read."""
        if position >= self._start:
            return self._after_in_tail(filters, position)
        async with self._reading:
            batch = await self._workers.run(
                lambda: read_log(self._agent, filters, position, _MOST_AT_ONCE)
            )
        return (batch.events, batch.end) if batch is not None else ((), position)

    def _after_in_tail(
        self, filters: Sequence[Filter], position: int
    ) -> tuple[Sequence[tuple[int, str]], int]:
        found: list[tuple[int, str]] = []
        room, now = _MOST_AT_ONCE, self._agent.now_ns
        for number, event, json in self._tail:
            if number <= position or not any(one.matches(event) for one in filters):
                continue
            if event.expires_ns is not None and event.expires_ns <= now:
                continue
            if room < len(json) and found:
                return found, number - 1
            room -= len(json)
            found.append((number, json))
        return found, self._end

    async def _wait_for_more(self, until: float) -> None:
        moved = self._moved
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await moved.wait()

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
            self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _read(self) -> tuple[list[_Numbered], Batch]:
        batch = read_log(self._agent, _EVERYTHING, self._end)
        return [_Numbered(number, AETHER.parse(json), json) for number, json in batch.events], batch

    def _take(self, new: tuple[list[_Numbered], Batch] | None) -> bool:
        """Add the read events to the tail. Returns whether the log was read to its end. None is a
        failed read, which is repeated with the next notice."""
        if new is None:
            return True
        events, batch = new
        addresses = {each.event.address for each in events} - {None}
        if any(each.event.address in addresses for each in self._tail):  # replaced by now
            self._tail = deque(each for each in self._tail if each.event.address not in addresses)
            self._characters = sum(len(each.json) for each in self._tail)
        self._tail.extend(events)
        self._characters += sum(len(each.json) for each in events)
        while len(self._tail) > _MOST_EVENTS or self._characters > _MOST_CHARACTERS:
            gone = self._tail.popleft()
            self._characters -= len(gone.json)
            self._start = gone.number
        self._end = batch.end
        return batch.is_last


async def _write(response: web.StreamResponse, text: str) -> None:
    """Raises TimeoutError if the client does not read."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await response.write(text.encode())


def notifying(
    handler: Callable[[dict[str, Any], object], dict[str, Any]], notify: Callable[[], None]
) -> Callable[[dict[str, Any], object], dict[str, Any]]:
    """A consumer of the log's stream that also notifies the event streams."""

    def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
        prefix = f"{AETHER.prefix}log#"
        if any(parse_record(record).pk.startswith(prefix) for record in event["Records"]):
            notify()
        return handler(event, context)

    return handle
