"""WebSocket connections of the local server: messages in order, frames out, no waiting for ever."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from aiohttp import WSCloseCode, web

from farthing.relay.connections import Delivery
from infra.local.gateway import SocketContext, route_key
from infra.local.hub import Hub
from infra.local.workers import LoopMailbox, Workers

Handler = Callable[[dict[str, Any], object], dict[str, Any]]

# Messages of one connection that may wait or run before we stop reading from it.
_MOST_IN_HAND = 128
_MOST_CHARACTERS_IN_HAND = 1024 * 1024
_WAIT_FOR_SLOW_CLIENT = 10.0
_WAIT_FOR_LIVE_CLIENT = 0.5  # others wait behind it
_LAST_FRAMES_SECONDS = 1.0
_CONCURRENT = "EVENT"
# What a thread is soon through with. To set up a sync takes seconds, and whatever goes by the
# default route may turn out to be one: a few of them must not keep all others waiting.
_QUICK = {"REQ", "CLOSE", "COUNT", "AUTH", "CHANGES"}


class Socket:
    """One client.

    EVENTs of a connection run side by side and share commits; any other verb waits for what was
    sent before it and holds back what comes after, so that a client sees its own messages in order.
    """

    def __init__(
        self, response: web.WebSocketResponse, transport: asyncio.Transport | None,
        context: SocketContext, routes: dict[str, Handler], hub: Hub, workers: Workers,
        sync_workers: Workers,
    ) -> None:  # fmt: skip
        self._response = response
        self._transport = transport
        self.context = context
        self._routes = routes
        self._hub = hub
        self._workers = workers
        self._sync_workers = sync_workers
        self._waiting: deque[tuple[str, str]] = deque()
        self._in_hand = 0  # characters of messages that wait or run
        self._running = 0
        self._exclusive = False
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._outgoing: deque[str] = deque()
        self._to_send = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self.buffered = 0  # characters that wait for the client
        self.awaited = 0  # threads that wait until there are fewer
        self.drained = threading.Condition()
        self.closing = False
        self._goodbye: asyncio.Task[None] | None = None

    async def take(self, body: str) -> None:
        """Queue a message; waits while the client has too many in hand."""
        if self.closing:
            return
        self._waiting.append((route_key(body), body))
        self._in_hand += len(body)
        self._idle.clear()
        self._start()
        if not self._has_room():
            self._room.clear()
        await self._room.wait()

    def _has_room(self) -> bool:
        few = self._running + len(self._waiting) < _MOST_IN_HAND
        return few and self._in_hand < _MOST_CHARACTERS_IN_HAND

    def _start(self) -> None:
        while self._waiting and not self._exclusive:
            route, body = self._waiting[0]
            if route != _CONCURRENT:
                if self._running:
                    return
                self._exclusive = True
            self._waiting.popleft()
            self._running += 1
            handler = self._routes.get(route) or self._routes["$default"]
            event = self.context.event("MESSAGE", route, body)
            self._runner(route).submit(
                lambda h=handler, e=event: h(e, None), partial(self._finished, len(body))
            )

    def _runner(self, route: str) -> Hub | Workers:
        if route == _CONCURRENT:
            return self._hub
        return self._workers if route in _QUICK else self._sync_workers

    def _finished(self, size: int, result: dict[str, Any] | None) -> None:
        self._running -= 1
        self._in_hand -= size
        self._exclusive = False
        if result is not None and "body" in result:
            self.send([result["body"]])
        self._start()
        if self._has_room():
            self._room.set()
        if not self._running and not self._waiting:
            self._idle.set()

    async def finish(self) -> None:
        """Wait for the messages in hand, and for the goodbye where there is one."""
        await self._idle.wait()
        if self._goodbye is not None:
            await self._goodbye

    def send(self, frames: Iterable[str]) -> None:
        """Queue frames; from the loop's thread."""
        for frame in frames:
            self._outgoing.append(frame)
            self.buffered += len(frame)
        self._all_sent.clear()
        self._to_send.set()

    async def write(self) -> None:
        """Bring queued frames to the client until it is gone."""
        while not self._response.closed:
            await self._to_send.wait()
            self._to_send.clear()
            while self._outgoing:
                frame = self._outgoing.popleft()
                try:
                    await self._response.send_str(frame)
                except ConnectionError:
                    return
                self.buffered -= len(frame)
                self._tell_who_waits()
            self._all_sent.set()

    def _tell_who_waits(self) -> None:
        if self.awaited:
            with self.drained:
                self.drained.notify_all()

    def close(self, code: int = WSCloseCode.GOING_AWAY) -> "asyncio.Task[None]":
        """Take no more messages, answer those in hand, and hang up; from the loop's thread."""
        self.closing = True
        self._tell_who_waits()
        if self._goodbye is None:
            self._goodbye = asyncio.create_task(self._say_goodbye(code))
        return self._goodbye

    async def _say_goodbye(self, code: int) -> None:
        await self._idle.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_sent.wait(), _LAST_FRAMES_SECONDS)
        await self._response.close(code=code, drain=False)
        # A transport that is merely closed would wait for ever for a client that does not read.
        if self._transport is not None:
            self._transport.abort()


class LocalConnections:
    """The port to the clients of this process (see `relay.connections`)."""

    def __init__(self, mailbox: LoopMailbox, max_buffer: int, workers: int) -> None:
        self._mailbox = mailbox
        self._max_buffer = max_buffer
        self._sockets: dict[str, Socket] = {}
        # Threads that wait for slow clients are taken from everyone else: half of them, at most.
        self._patience = threading.BoundedSemaphore(max(1, workers // 2))

    def add(self, socket: Socket) -> None:
        self._sockets[socket.context.connection_id] = socket

    def remove(self, socket: Socket) -> None:
        self._sockets.pop(socket.context.connection_id, None)

    def all(self) -> list[Socket]:
        return list(self._sockets.values())

    def post(self, connection_id: str, frames: Iterable[str]) -> Delivery:
        return self.post_in_order(connection_id, frames)

    def post_in_order(
        self, connection_id: str, frames: Iterable[str], *, live: bool = False
    ) -> Delivery:
        socket = self._sockets.get(connection_id)
        if socket is None or socket.closing:
            return Delivery.GONE
        seconds = _WAIT_FOR_LIVE_CLIENT if live else _WAIT_FOR_SLOW_CLIENT
        if socket.buffered > self._max_buffer and not self._wait_for(socket, seconds):
            return Delivery.SLOW
        batch = list(frames)
        self._mailbox.put(lambda: socket.send(batch))
        return Delivery.DELIVERED

    def _wait_for(self, socket: Socket, seconds: float) -> bool:
        if not self._patience.acquire(blocking=False):
            return False
        try:
            with socket.drained:
                socket.awaited += 1
                socket.drained.wait_for(
                    lambda: socket.closing or socket.buffered <= self._max_buffer,
                    seconds,
                )
                socket.awaited -= 1
            return not socket.closing and socket.buffered <= self._max_buffer
        finally:
            self._patience.release()

    def post_each(self, frames: Iterable[tuple[str, str]]) -> dict[str, Delivery]:
        queues: dict[Socket, list[str]] = {}
        troubles: dict[str, Delivery] = {}
        for connection_id, frame in frames:
            socket = self._sockets.get(connection_id)
            if socket is None or socket.closing:
                troubles[connection_id] = Delivery.GONE
            elif socket.buffered > self._max_buffer:
                troubles[connection_id] = Delivery.SLOW
            else:
                queues.setdefault(socket, []).append(frame)
        if queues:
            self._mailbox.put(lambda: [socket.send(batch) for socket, batch in queues.items()])
        return troubles

    def close(self, connection_id: str) -> None:
        socket = self._sockets.get(connection_id)
        if socket is not None:
            socket.closing = True
            self._mailbox.put(lambda: socket.close(WSCloseCode.POLICY_VIOLATION))
