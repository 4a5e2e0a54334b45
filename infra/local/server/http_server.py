"""The general door, of HTTP and WebSocket: how fast a visitor may ask, how long a request may take
to arrive, and by which name we are known."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from farthing.handlers.web import problem
from farthing.settings import Settings
from infra.local.server.client_address import peer_of, visitor_of
from infra.local.server.connection_limits import ConnectionLimits
from infra.local.server.gateway import http_answer
from infra.local.server.packet_server import PATH as PACKETS

# For the rest of a request that has been refused: a client that still sends would not see why.
_LINGER_SECONDS = 2.0
# Where a request keeps its client's address.
CLIENT = "client"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def _is_ours(record: logging.LogRecord) -> bool:
    """What strangers send that is no HTTP is answered, and is no error of ours. It must not be
    logged either: it may be a token behind a misspelt name."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


log = logging.getLogger("farthing.http")
log.addFilter(_is_ours)


class HttpServer(web.Server):
    """The low-level server, for connections that have been let in. Whoever is silent for
    `request_seconds`, or sends a request too slowly, is sent off."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        settings: Settings,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(
            self._greet, access_log=None, logger=log, keepalive_timeout=settings.request_seconds,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,  # as API Gateway; and nothing grows on its way in
        )  # fmt: skip
        self._handler = handler
        self._visitors = limits
        self._transports: dict[RequestHandler, asyncio.Transport] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports[handler] = transport

    async def _greet(self, request: web.BaseRequest) -> web.StreamResponse:
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
        client = request[CLIENT] = self._visitors.proxies.client(peer, request.headers)
        # Packets have a rate of their own, which is their peer's.
        if request.path != PACKETS and self._visitors.is_too_fast(visitor_of(client)):
            return refusal(429, "too many requests from this address")
        try:
            return await self._handler(request)
        except (ConnectionError, RequestPayloadError):  # has gone, in the middle of it
            return refusal(400, "expected a whole request")
        except web.HTTPException as error:
            return refusal(error.status, error.reason)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._visitors.leave(self._transports.pop(handler))


def refusal(status: int, reason: str) -> web.Response:
    """A problem document for what no handler has seen."""
    answer = http_answer(problem(status, reason))
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


async def body_of(request: web.BaseRequest, settings: Settings) -> bytes:
    if request.content.is_eof():  # has come with the head: nothing to wait for
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
