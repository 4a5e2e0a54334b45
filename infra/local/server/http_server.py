"""The general HTTP and WebSocket server. It limits how fast a client may send requests and how long
a request may take to arrive, and checks the host name that a client uses."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from farthing.aether.errors import Code
from farthing.handlers.web import problem
from farthing.settings import Settings
from infra.local.server.client_address import limit_key, peer_of
from infra.local.server.connection_limits import ConnectionLimits
from infra.local.server.gateway import http_answer
from infra.local.server.packet_server import PATH as PACKETS

# Seconds to read the rest of a refused request: a client that is still sending misses the answer.
_LINGER_SECONDS = 2.0
# Where a request keeps its client's address.
CLIENT = "client"
_CODES = {413: Code.TOO_LARGE, 429: Code.RATE_LIMITED}
# For a client that sends its body when it has read this.
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a record is about an error of ours. Bytes that are not HTTP are answered with 400 and
    must not be logged: a token may follow a misspelt header name."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


log = logging.getLogger("farthing.http")
log.addFilter(_is_ours)


class HttpServer(web.Server):
    """aiohttp's low-level server, for connections that the limits have accepted. A client that is
    silent for `request_seconds`, or that sends a request too slowly, is disconnected."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        settings: Settings,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(
            self._serve, access_log=None, logger=log, keepalive_timeout=settings.request_seconds,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,  # like API Gateway; and a small body cannot grow
        )  # fmt: skip
        self._handler = handler
        self._limits = limits
        self._transports: dict[RequestHandler, asyncio.Transport] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports[handler] = transport

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        begun = time.monotonic()
        response = await self._answer(request)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "request",
                extra={
                    "method": request.method, "path": request.path, "status": response.status,
                    "client": request[CLIENT], "seconds": round(time.monotonic() - begun, 4),
                },
            )  # fmt: skip
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        peer = peer_of(request.transport)
        client = request[CLIENT] = self._limits.proxies.client(peer, request.headers)
        if self._limits.is_blocked(client):
            return refusal(403, "this address is blocked")
        # Packets are limited by the rate of their peer instead.
        if request.path != PACKETS and self._limits.is_too_fast(limit_key(client)):
            return refusal(429, "too many requests from this address")
        try:
            return await self._handler(request)
        except (ConnectionError, RequestPayloadError):  # the client left during the request
            return refusal(400, "expected a whole request")
        except web.HTTPException as error:
            return refusal(error.status, error.reason)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._limits.leave(self._transports.pop(handler))


def refusal(status: int, reason: str) -> web.Response:
    """A problem document for a request that reaches no handler. Has the code for Aether clients."""
    code = _CODES.get(status)
    more = {"accepted": False, "error": code.value, "message": reason} if code else None
    answer = http_answer(problem(status, reason, more))
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


async def body_of(request: web.BaseRequest, settings: Settings) -> bytes:
    if request.content.is_eof():  # the body came with the head
        return await request.read()
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(_GO_ON)
    try:
        async with asyncio.timeout(settings.request_seconds or None):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


def own_name(request: web.BaseRequest, settings: Settings) -> str:
    """The host name by which the client knows us, if it is one of ours.

    Clients sign this name to authenticate. A relay that accepted any name from the Host header
    would accept what a client has signed for another relay, and that relay has passed on.
    """
    return _host_of(request) if is_own_name(request, settings) else settings.host


def is_own_name(request: web.BaseRequest, settings: Settings) -> bool:
    """Whether the Host header names an address of this server."""
    address = request.get_extra_info("sockname")
    return _host_of(request) in {settings.host, *_LOOPBACK, *(address[:1] if address else ())}


def _host_of(request: web.BaseRequest) -> str:
    try:
        return urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        return ""
