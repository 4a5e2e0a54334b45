"""A fast path for packets: `POST /ilp` in the plain form in which connectors send it, parsed here
and handed to its handler, without the work that a general HTTP server does for each request.

This server refuses nothing itself. A connection that sends anything else, even an unusual header,
is handed to the general server for good, with every byte received so far.
"""

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple, cast

from multidict import CIMultiDict

from farthing.connector.requests import MAX_PACKET_BYTES
from infra.local.server.client_address import peer_of
from infra.local.server.connection_limits import ConnectionLimits
from infra.local.server.gateway import HttpAnswer, http_answer, http_event
from infra.local.server.workers import Runner

Handler = Callable[[dict[str, Any], object], dict[str, Any]]

PATH = "/ilp"
_REQUEST_LINE = b"POST /ilp HTTP/1.1\r\n"
_END_OF_HEAD = b"\r\n\r\n"
_LONGEST_HEAD = 4096
# Headers that need special handling by the general server.
_UNUSUAL = {"content-encoding", "expect", "te", "trailer", "transfer-encoding", "upgrade"}
_KEEP_ALIVE = "keep-alive"  # the default of HTTP/1.1, which some clients send anyway
_LENGTH_DIGITS = 5
# Bytes that are read ahead while a request is being answered.
_MOST_AHEAD = 64 * 1024
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Request(NamedTuple):
    headers: dict[str, str]  # names in lower case
    body: bytes
    rest: bytes  # the bytes after the request


class NotPlain(Exception):
    """The bytes are not the beginning of a plain packet request."""


def read_request(octets: bytes) -> Request | None:
    """The request at the beginning of the octets, or None while a part of it is missing."""
    if not octets.startswith(_REQUEST_LINE[: len(octets)]):
        raise NotPlain
    end = octets.find(_END_OF_HEAD, 0, _LONGEST_HEAD)
    if end < 0:
        if len(octets) >= _LONGEST_HEAD:
            raise NotPlain
        return None
    headers = _headers(octets[len(_REQUEST_LINE) : end])
    start = end + len(_END_OF_HEAD)
    stop = start + _content_length(headers)
    if stop > len(octets):
        return None
    return Request(headers, octets[start:stop], octets[stop:])


def _headers(octets: bytes) -> dict[str, str]:
    if not octets.isascii():
        raise NotPlain
    headers: dict[str, str] = {}
    for line in octets.decode("ascii").split("\r\n"):
        name, colon, value = line.partition(":")
        name = name.lower()
        # A name of letters, digits and hyphens, once; a value without tabs and control characters.
        plain = name.replace("-", "").isalnum() and colon and value.isprintable()
        if not plain or name in headers:
            raise NotPlain
        headers[name] = value.strip(" ")
    keep_alive = headers.get("connection", _KEEP_ALIVE).lower() == _KEEP_ALIVE
    if "host" not in headers or not keep_alive or not _UNUSUAL.isdisjoint(headers):
        raise NotPlain
    return headers


def _content_length(headers: dict[str, str]) -> int:
    digits = headers.get("content-length", "")
    if not digits.isdecimal() or len(digits) > _LENGTH_DIGITS or int(digits) > MAX_PACKET_BYTES:
        raise NotPlain
    return int(digits)


class PacketServer:
    """Creates the protocol of each new connection, and tracks those that have sent only packets."""

    def __init__(
        self, handler: Handler, runner: Runner, limits: ConnectionLimits, request_seconds: float,
        general: Callable[[], asyncio.Protocol],
    ) -> None:  # fmt: skip
        self.handler = handler
        self.runner = runner
        self.limits = limits
        self.request_seconds = request_seconds
        self.general = general
        self.open: set[PacketConnection] = set()
        self.stopping = False

    def __call__(self) -> "PacketConnection":
        return PacketConnection(self)

    async def stop(self, seconds: float) -> None:
        """Answer the requests that have arrived, then close all connections."""
        self.stopping = True
        connections = list(self.open)
        for connection in connections:
            connection.close_if_idle()
        if connections:
            await asyncio.wait([connection.gone for connection in connections], timeout=seconds)
        for connection in list(self.open):
            connection.hang_up()


class PacketConnection(asyncio.Protocol):
    """A connection that has sent only packets so far. They are answered one by one."""

    def __init__(self, server: PacketServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._unread = b""
        self._answering = False
        self._reads = True  # whether the socket is being read
        self._writes = True  # whether the client keeps up with our answers
        self._waits_since = self._loop.time()  # since when we wait for the client
        self._timer: asyncio.TimerHandle | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._server.limits.enter(self._transport):
            return
        self._server.open.add(self)
        self._peer = peer_of(transport)
        self._by_proxy = self._server.limits.proxies.trusts(self._peer)
        self._look_again_after(self._server.request_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.limits.leave(self._transport)
        self._leave()

    def _leave(self) -> None:
        self._server.open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        if not self._unread:
            self._waits_since = self._loop.time()
        self._unread += data
        self._go_on()
        if len(self._unread) > _MOST_AHEAD and self._reads:
            self._reads = False
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Start the next request, unless one is being answered or the client does not read."""
        if self._answering or not self._writes or not self._unread:
            return
        if self._transport.is_closing():
            return
        try:
            request = read_request(self._unread)
        except NotPlain:
            self._hand_over()
            return
        if request is not None:
            self._unread = request.rest
            self._answering = True
            event = http_event(
                "POST", PATH, "", request.headers, request.body, self._client(request),
                f"POST {PATH}",
            )  # fmt: skip
            handler = self._server.handler
            self._server.runner.submit(lambda: handler(event, None), self._answer)

    def _client(self, request: Request) -> str:
        if not self._by_proxy:
            return self._peer
        headers = CIMultiDict(request.headers)
        return self._server.limits.proxies.client(self._peer, headers)

    def _answer(self, result: dict[str, Any] | None) -> None:
        self._answering = False
        if self._transport.is_closing():
            return
        self._transport.write(_octets(http_answer(result), int(time.time())))
        self._waits_since = self._loop.time()
        if self._server.stopping:
            self._transport.close()
            return
        self._go_on()
        self._read_again()

    def _read_again(self) -> None:
        if not self._reads and len(self._unread) <= _MOST_AHEAD:
            self._reads = True
            self._transport.resume_reading()

    def _hand_over(self) -> None:
        """Give the connection to the general server."""
        self._leave()
        octets, self._unread = self._unread, b""
        self._read_again()
        protocol = self._server.general()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(octets)

    # While a client does not read its answers, no more requests are handled for it.

    def pause_writing(self) -> None:
        self._writes = False

    def resume_writing(self) -> None:
        self._writes = True
        self._go_on()
        self._read_again()

    # A client that sends nothing is disconnected after a while.

    def _look_again_after(self, seconds: float) -> None:
        if seconds:
            self._timer = self._loop.call_later(seconds, self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        limit = self._server.request_seconds
        left = self._waits_since + limit - self._loop.time()
        if self._answering:
            self._look_again_after(limit)
        elif left > 0:
            self._look_again_after(left)
        elif not self._writes:
            self._transport.abort()
        else:
            if _END_OF_HEAD in self._unread:
                self._transport.write(_TOO_SLOW)
            self._transport.close()

    def close_if_idle(self) -> None:
        if not self._answering:
            self._transport.close()

    def hang_up(self) -> None:
        self._transport.abort()


def _octets(answer: HttpAnswer, now: int) -> bytes:
    lines = [
        _status_line(answer.status),
        *(f"{name}: {value}" for name, value in answer.headers.items()),
        f"Content-Length: {len(answer.body)}",
        _date_line(now),
    ]
    return "\r\n".join(lines).encode("ascii") + _END_OF_HEAD + answer.body


@lru_cache
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


@lru_cache(maxsize=1)
def _date_line(now: int) -> str:
    return f"Date: {formatdate(now, usegmt=True)}"
