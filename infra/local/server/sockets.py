"""WebSocket connections of the local server. Messages are handled in order, and waiting for a slow
client is limited."""

import asyncio
import logging
import threading
from base64 import b64decode
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Any

from aiohttp import WSCloseCode, web

from farthing.aether.frames import MessageType
from farthing.ports.connections import Binary, Delivery, Frame, NumberedFrame
from farthing.ports.meter import Meter, Metric
from farthing.surface import DEFAULT, Work
from infra.local.server.backlog import STALLED_SECONDS, Backlog, Line
from infra.local.server.gateway import SocketContext, aether_type, route_key, work_of
from infra.local.server.workers import Mailbox, OwnMailbox, Workers
from infra.local.server.write_scheduler import WriteScheduler

Handler = Callable[[dict[str, Any], object], dict[str, Any]]

log = logging.getLogger("farthing")

# Messages of one connection that may wait or run before we stop reading from it.
_MOST_IN_HAND = 128
_MOST_CHARACTERS_IN_HAND = 1024 * 1024
_WAIT_FOR_SLOW_CLIENT = 10.0
_WAIT_FOR_LIVE_CLIENT = STALLED_SECONDS  # other clients wait meanwhile
_LAST_FRAMES_SECONDS = 1.0
# Octets that are joined for one write.
_LARGEST_WRITE = 256 * 1024
# Messages of one client that are answered in a row before other clients have their turn.
_MOST_AT_ONCE = 16
# Live frames of one call that are handed to the loop together.
_MOST_TOGETHER = 512
_FINAL_TEXT, _FINAL_BINARY = 0x81, 0x82
_SHORT, _MEDIUM = Struct(">BB").pack, Struct(">BBH").pack
_LONG = Struct(">BBQ").pack
_SHORTER_THAN_MEDIUM, _SHORTER_THAN_LONG = 126, 65536


# An entry of a queue: octets, or a frame that is written when it is sent.
Queued = bytes | NumberedFrame


# Octets are looked for first: nearly all frames are octets, and an abstract class takes longer to
# tell.
def _queued(frame: Frame) -> Queued:
    if isinstance(frame, bytes):
        return frame
    return frame.encode() if isinstance(frame, str) else frame


def _size(frame: Queued) -> int:
    return len(frame) if isinstance(frame, bytes) else frame.size


class Socket:
    """One client.

    EVENTs of a connection run in parallel and share commits. Every other verb waits for the earlier
    messages, and later messages wait for it. So a client sees its own messages in order.
    """

    def __init__(
        self, response: web.WebSocketResponse, drain: Callable[[], Awaitable[None]],
        transport: asyncio.Transport | None,
        context: SocketContext, routes: dict[str, Handler], scheduler: WriteScheduler,
        workers: Workers, sync_workers: Workers, connections: "LocalConnections",
        is_at_hand: Callable[[str, str], bool] = lambda _route, _body: False,
    ) -> None:  # fmt: skip
        self._response = response
        self._drain = drain
        self._transport = transport
        self._is_at_hand = is_at_hand
        self._answered_at_once = 0
        self.context = context
        self._routes = routes
        self._scheduler = scheduler
        self._workers = workers
        self._sync_workers = sync_workers
        self._waiting: deque[tuple[str, Work, str | bytes]] = deque()
        self.is_marked = False  # as Aether
        self.speaks_aether = False  # whether any message so far was Aether
        self._is_new = True
        self._in_hand = 0  # characters of waiting and running messages
        self._running = 0
        self._exclusive = False
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._connections = connections
        self.line = Line(lambda: connections.cut_off(self))
        self._outgoing: deque[Queued] = deque()
        self._sending = False
        self._unsent = 0  # bytes that were written while the client did not keep up
        self._behind = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self.closing = False
        self._goodbye: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    async def take(self, body: str | bytes) -> None:
        """Queue a message. Waits while the client has too many unanswered messages."""
        if self.closing:
            return
        kind = aether_type(body)
        self.speaks_aether = self.speaks_aether or bool(kind)
        self.is_marked = self.is_marked or (self._is_new and kind == MessageType.HELLO.word)
        self._is_new = False
        route = route_key(body) if isinstance(body, str) else DEFAULT
        work = work_of(route, kind)
        if work is Work.READ and isinstance(body, str) and self._takes_no_time(route, body):
            self._answer(_result_of(self._call(route, body)))
            self._answered_at_once += 1
            if self._answered_at_once >= _MOST_AT_ONCE:
                self._answered_at_once = 0
                await asyncio.sleep(0)
            return
        self._waiting.append((route, work, body))
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
            call, finished = self._call(route, body), partial(self._finished, len(body))
            self._runner(work).submit(call, finished)

    def _call(self, route: str, body: str | bytes) -> Callable[[], dict[str, Any]]:
        handler = self._routes.get(route) or self._routes["$default"]
        return partial(handler, self.context.event("MESSAGE", route, body), None)

    def _takes_no_time(self, route: str, body: str) -> bool:
        """Whether the message is answered here, in the loop's thread, which must not wait for a
        client. Earlier messages come first."""
        if self._running or self._waiting or self.line.waiting:
            return False
        return self._connections.backlog.has_room_for_one and self._is_at_hand(route, body)

    def _runner(self, work: Work) -> WriteScheduler | Workers:
        if work is Work.WRITE:
            return self._scheduler
        # A few syncs, each of which takes seconds, must not keep all others waiting.
        return self._workers if work is Work.READ else self._sync_workers

    def _finished(self, size: int, result: dict[str, Any] | None) -> None:
        self._running -= 1
        self._in_hand -= size
        self._exclusive = False
        self._answer(result)
        self._start()
        if self._has_room():
            self._room.set()
        if not self._running and not self._waiting:
            self._idle.set()

    def _answer(self, result: dict[str, Any] | None) -> None:
        if result is not None and "body" in result:
            body = result["body"]
            self._reply(Binary(b64decode(body)) if "isBase64Encoded" in result else body.encode())

    async def finish(self) -> None:
        """Wait for the unanswered messages, and for the close frame if one is sent."""
        await self._idle.wait()
        if self._goodbye is not None:
            await self._goodbye

    def _reply(self, frame: bytes) -> None:
        if self._connections.backlog.take_for_reply(self.line, len(frame)):
            self.send([frame])
        elif not self.closing:
            self._connections.cut_off(self)

    def send(self, frames: Iterable[Queued]) -> None:
        """Queue frames for which room was reserved. Called in the loop's thread."""
        if self.line.closed:
            return
        self._outgoing.extend(frames)
        if self._outgoing and not self._sending:
            self._sending = True
            self._all_sent.clear()
            # Later in this turn of the loop, so that all frames of this moment go out with one
            # write.
            self._loop.call_soon(self._write_while_taken)

    def _write_while_taken(self) -> None:
        """Write queued frames as long as the client keeps up."""
        if self._write_some():
            self._behind.set()
        elif self._outgoing:
            self._loop.call_soon(self._write_while_taken)  # other clients have their turn
        else:
            self._sending = False
            self._all_sent.set()

    def _write_some(self) -> bool:
        """Write some of the queued frames. Returns whether the client does not keep up."""
        parts: list[bytes] = []
        octets = size = 0
        while self._outgoing and octets < _LARGEST_WRITE:
            frame = self._outgoing.popleft()
            size += _size(frame)
            written = frame if isinstance(frame, bytes) else _written(frame)
            if written is not None:
                octets += len(written)
                parts += (_head(written), written)
        transport = self._transport
        if transport is None or transport.is_closing() or self._response.closed:
            return False
        transport.write(b"".join(parts))
        if transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]:
            self._unsent = size
            return True
        self._connections.backlog.give_back(self.line, size)
        return False

    async def write(self) -> None:
        """Write further frames whenever the client has caught up, until the client is gone."""
        while not self._response.closed:
            await self._behind.wait()
            self._behind.clear()
            try:
                await self._drain()
            except ConnectionError:
                return
            self._connections.backlog.give_back(self.line, self._unsent)
            self._unsent = 0
            self._write_while_taken()

    def drop(self) -> None:
        """Disconnect without sending the waiting frames. Called in the loop's thread."""
        self._outgoing.clear()
        self._unsent = 0
        self._all_sent.set()
        self.close(WSCloseCode.POLICY_VIOLATION)

    def close(self, code: int = WSCloseCode.GOING_AWAY) -> "asyncio.Task[None]":
        """Accept no more messages, answer the accepted ones, and disconnect. Called in the loop's
        thread."""
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
        # A closed transport would wait forever for a client that does not read.
        if self._transport is not None:
            self._transport.abort()


def _head(payload: bytes) -> bytes:
    """The octets before the payload of a frame (RFC 6455, section 5.2)."""
    first = _FINAL_BINARY if type(payload) is Binary else _FINAL_TEXT
    length = len(payload)
    if length < _SHORTER_THAN_MEDIUM:
        return _SHORT(first, length)
    if length < _SHORTER_THAN_LONG:
        return _MEDIUM(first, 126, length)
    return _LONG(first, 127, length)


def _result_of(call: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return call()
    except Exception:
        log.exception("a handler failed")
        return None


def _written(frame: NumberedFrame) -> bytes | None:
    """The octets of a frame that is sent now, or None if it can no longer be sent."""
    try:
        made = frame.write()
    except Exception:
        log.exception("a frame could not be sealed")
        return None
    return made.encode() if isinstance(made, str) else made and Binary(made)


class LocalConnections:
    """The port to the clients of this process (see `ports.connections`)."""

    carries_replies = True
    frames_fail_alone = False

    def __init__(
        self,
        mailbox: OwnMailbox,
        backlog: Backlog,
        scheduler: WriteScheduler,
        meter: Meter,
        workers: int,
        step_aside: Callable[[], bool] = lambda: False,
    ) -> None:
        self._mailbox = mailbox
        self.backlog = backlog
        self._scheduler = scheduler
        self._meter = meter
        self._sockets: dict[str, Socket] = {}
        # At most half of the threads may wait for slow clients, because all other clients need
        # threads too. Further ones wait only if spare threads take their places.
        self._step_aside = step_aside
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
            if self._mailbox.is_inside():
                socket.send(batch)
            else:
                self._mailbox.put(lambda: socket.send(batch))
            return Delivery.DELIVERED
        outgoing = _Outgoing(self._mailbox)
        delivery = Delivery.DELIVERED
        for frame in batch:
            delivery = self._post(connection_id, frame, outgoing, live=live)
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
            delivery = self._post(connection_id, _queued(frame), outgoing, live=True)
            if delivery is not Delivery.DELIVERED:
                troubles[connection_id] = delivery
        outgoing.flush()
        return troubles

    def _post(
        self, connection_id: str, frame: Queued, outgoing: "_Outgoing", *, live: bool
    ) -> Delivery:
        socket = self._sockets.get(connection_id)
        if socket is None or socket.closing:
            return Delivery.GONE
        line, size = socket.line, _size(frame)
        if not self.backlog.take(line, size):
            outgoing.flush()  # our own queued frames may be the only obstacle
            if not (self._take_live(line, size) if live else self._take_patiently(line, size)):
                # A live event has no answer that could tell the client to try again.
                is_at_fault = live or not self.backlog.is_filled_by_others(line, size)
                return Delivery.SLOW if is_at_fault else Delivery.BUSY
        outgoing.add(socket, frame)
        return Delivery.DELIVERED

    def _take_live(self, line: Line, size: int) -> bool:
        if self._scheduler.is_inside() or self._mailbox.is_inside():
            return False  # all other writers would wait
        return self.backlog.take_in_time(line, size, _WAIT_FOR_LIVE_CLIENT)

    def _take_patiently(self, line: Line, size: int) -> bool:
        if self._mailbox.is_inside() or self._scheduler.is_inside():
            return False  # all others would wait
        is_counted = self._patience.acquire(blocking=False)
        if not is_counted and not self._step_aside():
            return False
        try:
            return self.backlog.take_in_time(line, size, _WAIT_FOR_SLOW_CLIENT)
        finally:
            if is_counted:
                self._patience.release()

    def cut_off(self, socket: Socket) -> None:
        """Disconnect a client that others would have to wait for. Any thread may call this."""
        self._meter.count(Metric.CLIENTS_TOO_SLOW)
        socket.closing = True
        self._mailbox.put(socket.drop)

    def close(self, connection_id: str) -> None:
        socket = self._sockets.get(connection_id)
        if socket is not None:
            socket.closing = True
            self._mailbox.put(lambda: socket.close(WSCloseCode.POLICY_VIOLATION))


class _Outgoing:
    """The frames of one call, which are passed to the loop together."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._queues: dict[Socket, list[Queued]] = {}
        self._frames = 0

    def add(self, socket: Socket, frame: Queued) -> None:
        self._queues.setdefault(socket, []).append(frame)
        self._frames += 1
        if self._frames >= _MOST_TOGETHER:  # the first clients do not wait for the last ones
            self.flush()

    def flush(self) -> None:
        if self._queues:
            queues, self._queues = self._queues, {}
            self._frames = 0

            def send() -> None:
                for socket, batch in queues.items():
                    socket.send(batch)

            self._mailbox.put(send)
