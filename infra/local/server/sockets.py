"""WebSocket connections of the local server: messages are handled in order, frames are sent, and no
slow client is waited for without end."""

import asyncio
import logging
import threading
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from farthing.ports.connections import Delivery, Frame, NumberedFrame
from farthing.ports.meter import Meter, Metric
from farthing.surface import DEFAULT, Work
from infra.local.server.backlog import STALLED_SECONDS, Backlog, Line
from infra.local.server.gateway import SocketContext, aether_type, route_key, work_of
from infra.local.server.workers import Mailbox, Workers
from infra.local.server.write_scheduler import WriteScheduler

Handler = Callable[[dict[str, Any], object], dict[str, Any]]

log = logging.getLogger("farthing")

# Messages of one connection that may wait or run before we stop reading from it.
_MOST_IN_HAND = 128
_MOST_CHARACTERS_IN_HAND = 1024 * 1024
_WAIT_FOR_SLOW_CLIENT = 10.0
_WAIT_FOR_LIVE_CLIENT = STALLED_SECONDS  # others wait behind it
_LAST_FRAMES_SECONDS = 1.0


class Binary(bytes):
    """A frame that goes out as binary; all other octets are text."""


# What waits in a queue: octets, or a frame that is written when its turn has come.
Queued = bytes | NumberedFrame


def _queued(frame: Frame) -> Queued:
    if isinstance(frame, NumberedFrame):
        return frame
    return frame.encode() if isinstance(frame, str) else Binary(frame)


def _size(frame: Queued) -> int:
    return frame.size if isinstance(frame, NumberedFrame) else len(frame)


class Socket:
    """One client.

    EVENTs of a connection run side by side and share commits; any other verb waits for what was
    sent before it and holds back what comes after, so that a client sees its own messages in order.
    """

    def __init__(
        self, response: web.WebSocketResponse, transport: asyncio.Transport | None,
        context: SocketContext, routes: dict[str, Handler], scheduler: WriteScheduler,
        workers: Workers, sync_workers: Workers, connections: "LocalConnections",
    ) -> None:  # fmt: skip
        self._response = response
        self._transport = transport
        self.context = context
        self._routes = routes
        self._scheduler = scheduler
        self._workers = workers
        self._sync_workers = sync_workers
        self._waiting: deque[tuple[str, Work, str | bytes]] = deque()
        # Whether the client has spoken Aether, or has said that it will.
        self.speaks_aether = False
        self._in_hand = 0  # characters of messages that wait or run
        self._running = 0
        self._exclusive = False
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._connections = connections
        self.line = Line(lambda: connections.cut_off(self))
        self._outgoing: deque[Queued] = deque()
        self._to_send = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self.closing = False
        self._goodbye: asyncio.Task[None] | None = None

    async def take(self, body: str | bytes) -> None:
        """Queue a message; waits while the client has too many in hand."""
        if self.closing:
            return
        kind = aether_type(body)
        self.speaks_aether = self.speaks_aether or kind is not None
        route = route_key(body) if isinstance(body, str) else DEFAULT
        self._waiting.append((route, work_of(route, kind), body))
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
            route, work, body = self._waiting[0]
            if work is not Work.WRITE:
                if self._running:
                    return
                self._exclusive = True
            self._waiting.popleft()
            self._running += 1
            handler = self._routes.get(route) or self._routes["$default"]
            event = self.context.event("MESSAGE", route, body)
            self._runner(work).submit(
                partial(handler, event, None), partial(self._finished, len(body))
            )

    def _runner(self, work: Work) -> WriteScheduler | Workers:
        if work is Work.WRITE:
            return self._scheduler
        # A few syncs, each of which takes seconds, must not keep all others waiting.
        return self._workers if work is Work.READ else self._sync_workers

    def _finished(self, size: int, result: dict[str, Any] | None) -> None:
        self._running -= 1
        self._in_hand -= size
        self._exclusive = False
        if result is not None and "body" in result:
            body = result["body"]
            self._reply(Binary(b64decode(body)) if "isBase64Encoded" in result else body.encode())
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

    def _reply(self, frame: bytes) -> None:
        if self._connections.backlog.take_for_reply(self.line, len(frame)):
            self.send([frame])
        elif not self.closing:
            self._connections.cut_off(self)

    def send(self, frames: Iterable[Queued]) -> None:
        """Queue frames, for which there is room; from the loop's thread."""
        if self.line.closed:
            return
        self._outgoing.extend(frames)
        self._all_sent.clear()
        self._to_send.set()

    async def write(self) -> None:
        """Bring queued frames to the client until it is gone."""
        while not self._response.closed:
            await self._to_send.wait()
            self._to_send.clear()
            while self._outgoing:
                frame = self._outgoing.popleft()
                octets = _written(frame) if isinstance(frame, NumberedFrame) else frame
                binary = isinstance(octets, Binary)
                try:
                    if octets is not None:
                        opcode = WSMsgType.BINARY if binary else WSMsgType.TEXT
                        await self._response.send_frame(octets, opcode)
                except ConnectionError:
                    return
                self._connections.backlog.give_back(self.line, _size(frame))
            self._all_sent.set()

    def drop(self) -> None:
        """Hang up without the frames that wait; from the loop's thread."""
        self._outgoing.clear()
        self._all_sent.set()
        self.close(WSCloseCode.POLICY_VIOLATION)

    def close(self, code: int = WSCloseCode.GOING_AWAY) -> "asyncio.Task[None]":
        """Take no more messages, answer those in hand, and hang up; from the loop's thread."""
        self.closing = True
        self._connections.backlog.end(self.line)
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


def _written(frame: NumberedFrame) -> bytes | None:
    """The octets of a frame whose turn has come, None if it cannot be sent any more."""
    try:
        made = frame.write()
    except Exception:
        log.exception("a frame could not be sealed")
        return None
    return made.encode() if isinstance(made, str) else made and Binary(made)


class LocalConnections:
    """The port to the clients of this process (see `ports.connections`)."""

    carries_replies = True

    def __init__(
        self,
        mailbox: Mailbox,
        backlog: Backlog,
        scheduler: WriteScheduler,
        meter: Meter,
        workers: int,
    ) -> None:
        self._mailbox = mailbox
        self.backlog = backlog
        self._scheduler = scheduler
        self._meter = meter
        self._sockets: dict[str, Socket] = {}
        # Threads that wait for slow clients are taken from everyone else: half of them, at most.
        self._patience = threading.BoundedSemaphore(max(1, workers // 2))

    def add(self, socket: Socket) -> None:
        self._sockets[socket.context.connection_id] = socket

    def remove(self, socket: Socket) -> None:
        self._sockets.pop(socket.context.connection_id, None)
        self.backlog.close(socket.line)

    def __len__(self) -> int:
        return len(self._sockets)

    def __bool__(self) -> bool:
        return True  # also without clients

    def all(self) -> list[Socket]:
        return list(self._sockets.values())

    def post(self, connection_id: str, frames: Iterable[Frame]) -> Delivery:
        return self.post_in_order(connection_id, frames)

    def post_in_order(
        self, connection_id: str, frames: Iterable[Frame], *, live: bool = False
    ) -> Delivery:
        socket = self._sockets.get(connection_id)
        if socket is None or socket.closing:
            return Delivery.GONE
        batch = [_queued(frame) for frame in frames]
        if self.backlog.take_together(socket.line, sum(map(_size, batch))):
            self._mailbox.put(lambda: socket.send(batch))
            return Delivery.DELIVERED
        outgoing = _Outgoing(self._mailbox)
        take = self._take_live if live else self._take_patiently
        delivery = Delivery.DELIVERED
        for frame in batch:
            delivery = self._post(connection_id, frame, outgoing, take)
            if delivery is not Delivery.DELIVERED:
                break
        outgoing.flush()
        return delivery

    def post_each(self, frames: Iterable[tuple[str, Frame]]) -> dict[str, Delivery]:
        outgoing = _Outgoing(self._mailbox)
        troubles: dict[str, Delivery] = {}
        for connection_id, frame in frames:
            if connection_id in troubles:
                continue
            delivery = self._post(connection_id, _queued(frame), outgoing, self._take_live)
            if delivery is not Delivery.DELIVERED:
                troubles[connection_id] = delivery
        outgoing.flush()
        return troubles

    def _post(
        self, connection_id: str, frame: Queued, outgoing: "_Outgoing",
        take: Callable[[Line, int], bool],
    ) -> Delivery:  # fmt: skip
        socket = self._sockets.get(connection_id)
        if socket is None or socket.closing:
            return Delivery.GONE
        if not self.backlog.take(socket.line, _size(frame)):
            outgoing.flush()  # what we have queued ourselves may be all that is in the way
            if not take(socket.line, _size(frame)):
                return Delivery.SLOW
        outgoing.add(socket, frame)
        return Delivery.DELIVERED

    def _take_live(self, line: Line, size: int) -> bool:
        if self._scheduler.is_inside():
            return False  # all who write would wait
        return self.backlog.take_in_time(line, size, _WAIT_FOR_LIVE_CLIENT)

    def _take_patiently(self, line: Line, size: int) -> bool:
        if self._scheduler.is_inside() or not self._patience.acquire(blocking=False):
            return False
        try:
            return self.backlog.take_in_time(line, size, _WAIT_FOR_SLOW_CLIENT)
        finally:
            self._patience.release()

    def cut_off(self, socket: Socket) -> None:
        """Disconnect a client that others would have to wait for; from any thread."""
        self._meter.count(Metric.CLIENTS_TOO_SLOW)
        socket.closing = True
        self._mailbox.put(socket.drop)

    def close(self, connection_id: str) -> None:
        socket = self._sockets.get(connection_id)
        if socket is not None:
            socket.closing = True
            self._mailbox.put(lambda: socket.close(WSCloseCode.POLICY_VIOLATION))


class _Outgoing:
    """Frames of one call, handed to the loop together."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._queues: dict[Socket, list[Queued]] = {}

    def add(self, socket: Socket, frame: Queued) -> None:
        self._queues.setdefault(socket, []).append(frame)

    def flush(self) -> None:
        if self._queues:
            queues, self._queues = self._queues, {}

            def send() -> None:
                for socket, batch in queues.items():
                    socket.send(batch)

            self._mailbox.put(send)
