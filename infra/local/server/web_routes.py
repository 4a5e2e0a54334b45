"""HTTP requests on one machine: each goes to the handler that API Gateway would call for it."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from importlib import import_module
from typing import Any

from aiohttp import web

from farthing import surface
from farthing.handlers import runtime
from farthing.handlers.unmatched import answer_unmatched
from farthing.handlers.web import parameter
from farthing.ports.http import shows_token
from farthing.relay.moderation import settings_in_force
from farthing.settings import Settings
from infra.local.server.client_address import address_of, is_forwarded, peer_of
from infra.local.server.gateway import http_answer, http_event
from infra.local.server.http_server import CLIENT, body_of, is_own_name, refusal
from infra.local.server.meter import LocalMeter
from infra.local.server.packet_server import PATH as PACKETS
from infra.local.server.sockets import Handler
from infra.local.server.workers import Runner, run_in
from infra.web import pages

# The route whose answer stays open. Its function returns None if the handler is to answer.
STREAM = "GET /v1/stream"
Stream = Callable[[web.BaseRequest, dict[str, Any]], Awaitable[web.StreamResponse | None]]


# A stream starts with events stored after this request: earlier events must have their numbers.
SUBSCRIBE = "POST /v1/subscriptions"
# The streams of a subscription end with it.
UNSUBSCRIBE = "DELETE /v1/subscriptions/{id+}"


def _nothing() -> None: ...


def load_handler(function: str) -> Handler:
    handler: Handler = import_module(f"functions.{function}.handler").handler
    return handler


class WebRoutes:
    """The handlers of all HTTP routes. Handlers that write run in the write scheduler, others in
    the workers."""

    def __init__(
        self,
        settings: Settings,
        scheduler: Runner,
        workers: Runner,
        meter: LocalMeter,
        stream: Stream,
        before_subscription: Callable[[], object],
        after_unsubscribing: Callable[[str], object],
    ) -> None:
        self._stream = stream
        self._before = {SUBSCRIBE: before_subscription}
        self._after_unsubscribing = after_unsubscribing
        self._settings = settings
        self._runners = {surface.Work.WRITE: scheduler}
        self._workers = workers
        self._meter = meter
        names = {route.function for route in surface.ROUTES} | {surface.DEFAULT_FUNCTION}
        self._handlers = {name: load_handler(name) for name in names}
        packets = surface.match("POST", PACKETS)
        assert packets is not None, f"POST {PACKETS} is no route"
        self.packet_handler = self._handlers[packets.route.function]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.rel_url.raw_path
        if surface.allowed_methods(path, surface.LOCAL_ROUTES):
            return await self._answer_locally(request, path)
        page = pages.BY_PATH.get(path)
        if page is not None and method in ("GET", "HEAD") and _wants_page(request, page):
            return await self._page(page)
        found = surface.match(method, path)
        body = await body_of(request, self._settings)
        key, parameters = (found.key, found.parameters) if found else (surface.DEFAULT, None)
        event = http_event(
            method, request.path, request.rel_url.raw_query_string, request.headers, body,
            request[CLIENT], key, parameters,
        )  # fmt: skip
        if key == STREAM and self._settings.aether:
            stream = await self._stream(request, event)
            if stream is not None:
                return stream
        handler = self._handlers[found.route.function if found else surface.DEFAULT_FUNCTION]
        work = found.route.work if found else surface.Work.READ
        runner = self._runners.get(work, self._workers)
        before = self._before.get(key, _nothing)
        response = _response(await run_in(runner, lambda: (before(), handler(event, None))[1]))
        if key == UNSUBSCRIBE and response.status == HTTPStatus.OK:
            self._after_unsubscribing(parameter(event, "id"))
        return response

    async def _page(self, page: pages.StaticFile) -> web.Response:
        text = page.read()
        if page.is_template:
            # With the name that the operator has set meanwhile, also where scripts are off.
            settings = await run_in(self._workers, lambda: settings_in_force(runtime.agent()))
            facts = pages.facts(settings, searches=runtime.agent().search.is_on)
            text = pages.fill(text, facts)
        headers = pages.security_headers(self._settings.http_url.replace("http", "ws", 1)) | {
            "Content-Type": page.media_type,
            "Cache-Control": page.cache,
            "Vary": "Accept",
        }
        return web.Response(body=text.encode(), headers=headers)

    async def _answer_locally(self, request: web.BaseRequest, path: str) -> web.Response:
        if surface.match(request.method, path, surface.LOCAL_ROUTES) is None:
            return _response(answer_unmatched(request.method, path, surface.LOCAL_ROUTES))
        if not self._may_read_metrics(request):
            return refusal(401, "expected the metrics token, or a request from this machine")
        text = await run_in(self._workers, self._meter.text)
        return web.Response(body=text, headers={"Content-Type": self._meter.MEDIA_TYPE})

    def _may_read_metrics(self, request: web.BaseRequest) -> bool:
        """Whether a request may read the metrics, which show the revenue: with the token, or from a
        program on this machine. A proxy or browser on this machine may act for others, so their
        requests need the token."""
        shown = request.headers.get("Authorization", "")
        if shows_token(shown, self._settings.metrics_token):
            return True
        address = address_of(peer_of(request.transport))
        by_other = is_forwarded(request.headers) or "Origin" in request.headers
        is_here = address is not None and address.is_loopback and not by_other
        # A foreign page whose host name resolves to this machine sends that name as Host.
        return is_here and is_own_name(request, self._settings)


def _wants_page(request: web.BaseRequest, page: pages.StaticFile) -> bool:
    """Whether to send the page: at the root, only browsers ask for HTML. Other clients get the
    information document there."""
    accepted = request.headers.get("Accept", "")
    return page.path != "/" or ("text/html" in accepted and "nostr+json" not in accepted)


def _response(result: dict[str, object] | None) -> web.Response:
    answer = http_answer(result)
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
