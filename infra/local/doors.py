"""Who comes in: how many connections there are at once, in all and from one address, how many
requests, and how long one may take to arrive. API Gateway has such limits of its own."""

import asyncio
import resource
from collections import Counter
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from farthing.settings import Settings

# Files that are not connections: the database's, the logs', those to peers.
_OTHER_FILES = 256
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
# For the rest of a request that has been refused: a client that still sends would not see why.
_LINGER_SECONDS = 2.0
_MOST_VISITORS = 65536  # that are remembered by their requests
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class Doors(web.Server):
    """The low-level server, which turns away whom there is no room for. Whoever is silent for
    `request_seconds`, or sends a request too slowly, is sent off."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        settings: Settings,
    ) -> None:
        super().__init__(
            self._greet, access_log=None, keepalive_timeout=settings.request_seconds,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,  # as API Gateway; and nothing grows on its way in
        )  # fmt: skip
        self._handler = handler
        self._most = min(settings.max_connections, _room_for(settings.max_connections))
        self._most_each = settings.max_connections_per_address
        self._rate, self._burst = settings.requests_per_second, settings.request_burst
        self._requests: dict[str, tuple[float, float]] = {}  # beyond the rate, and when
        self._inside: dict[RequestHandler, str] = {}
        self._each: Counter[str] = Counter()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        visitor = visitor_at(transport)
        if len(self._inside) >= self._most or self._has_enough(visitor):
            transport.write(_FULL)
            self._loop.call_soon(transport.close)  # the handler is not ready to be told yet
            return
        self._inside[handler] = visitor
        self._each[visitor] += 1

    async def _greet(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.protocol not in self._inside:  # was quicker than the door
            raise web.HTTPServiceUnavailable
        # Packets have a rate of their own, which is their peer's.
        if request.path != "/ilp" and self._is_too_fast(self._inside[request.protocol]):
            raise web.HTTPTooManyRequests
        try:
            return await self._handler(request)
        except (ConnectionError, RequestPayloadError):  # has gone, in the middle of it
            raise web.HTTPBadRequest from None

    def _has_enough(self, visitor: str) -> bool:
        return bool(visitor) and 0 < self._most_each <= self._each[visitor]

    def _is_too_fast(self, visitor: str) -> bool:
        """A new connection would begin to count from anew, and plain requests have none."""
        if not visitor or not self._rate:
            return False
        now = self._loop.time()
        excess, then = self._requests.get(visitor, (0.0, now))
        excess = max(0.0, excess - self._rate * (now - then)) + 1
        if len(self._requests) >= _MOST_VISITORS:
            self._requests.clear()
        self._requests[visitor] = excess, now
        return excess > self._burst

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        visitor = self._inside.pop(handler, None)
        if visitor is not None:
            self._each[visitor] -= 1
            if not self._each[visitor]:
                del self._each[visitor]


def visitor_at(transport: asyncio.BaseTransport) -> str:
    """Whom connections are counted by: an address, or an IPv6 network, of which anyone has one.
    Nobody for this machine's own, where a proxy speaks for many."""
    peer = transport.get_extra_info("peername")
    if not peer:
        return ""
    address = ip_address(peer[0].partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return ""
    return str(address) if address.version == 4 else address.packed[:8].hex()


async def body_of(request: web.BaseRequest, settings: Settings) -> bytes:
    if request.content.is_eof():  # has come with the head, as packets do: nothing to wait for
        return await request.read()
    try:
        async with asyncio.timeout(settings.request_seconds or None):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


def own_name(request: web.BaseRequest, settings: Settings) -> str:
    """The host name by which the client knows us, as far as that is no other's word.

    Clients sign it to authenticate. A relay that takes any name from the Host header takes what was
    signed for another relay, and handed on by that one.
    """
    try:
        name = urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        name = ""
    address = request.get_extra_info("sockname")
    ours = {settings.host, *_LOOPBACK, *(address[:1] if address else ())}
    return name if name in ours else settings.host


def _room_for(connections: int) -> int:
    """How many connections the process may have open, once it has asked for enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, soft - _OTHER_FILES)
