"""Requests to peers from the local server. A handler that the scheduler runs must not block other
handlers. So the event loop sends its requests: there, many can wait at once at little cost. The
requests of other threads are sent there as well, so that a stop can end all of them.
"""

import asyncio
import logging
import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver

from farthing.aws.outbound import LARGEST_REPLY, HttpOutbound
from farthing.ports.hosts import PRIVATE, HostNotAllowed, HostRules, is_literal, is_public
from farthing.ports.outbound import (
    CallbackAttempts,
    OutboundFailed,
    OutboundTimeout,
    Response,
)
from infra.local.server.workers import OwnMailbox
from infra.local.server.write_scheduler import Outcome, WriteScheduler

log = logging.getLogger("farthing")

# Each carries one packet at a time: with a next hop 100 ms away, 1,280 a second. Another Farthing
# accepts 200 connections from one address by default.
_CONNECTIONS_TO_A_HOST = 128
_STOPPING = "the server is stopping"


class LocalOutbound:
    """Must be created and closed in the event loop."""

    def __init__(self, scheduler: WriteScheduler, mailbox: OwnMailbox, rules: HostRules) -> None:
        self._scheduler = scheduler
        self._mailbox = mailbox
        self._rules = rules
        self._blocking = HttpOutbound(rules)  # for threads that may wait
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, limit_per_host=_CONNECTIONS_TO_A_HOST, resolver=_CheckedResolver(rules)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._under_way: set[asyncio.Task[None]] = set()
        self._callbacks: set[asyncio.Task[None]] = set()
        self._given_up = False

    def give_up(self) -> None:
        """End the requests under way, as if no answer came in time, and send no more: the server
        stops."""
        self._given_up = True
        for request in self._under_way:
            request.cancel()

    async def close(self) -> None:
        self.give_up()
        for callback in self._callbacks:
            callback.cancel()  # a sender that misses its callback asks again
        await asyncio.gather(*self._callbacks, return_exceptions=True)
        await self._session.close()

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        if self._mailbox.is_inside():  # the event loop cannot wait for itself
            return self._blocking.post(url, headers, body, timeout)

        def start(resume: Callable[[Outcome], None]) -> None:
            self._mailbox.put(lambda: self._begin(url, headers, body, timeout, resume))

        if self._scheduler.is_inside():
            response: Response = self._scheduler.wait_outside(start)
            return response
        if self._given_up:  # the event loop may have stopped
            raise OutboundFailed(_STOPPING)
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        start(outcomes.put)
        response, error = outcomes.get()
        if error is not None:
            raise error
        return response

    def side_by_side(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run calls that each send a request, at the same time. None of the calls may raise."""
        if not self._scheduler.is_inside():
            return self._blocking.side_by_side(calls)
        results: list[Any] = [None] * len(calls)
        left = len(calls)

        def start(resume: Callable[[Outcome], None]) -> None:
            def done(number: int, result: Any) -> None:
                nonlocal left
                results[number], left = result, left - 1
                if not left:
                    resume((results, None))

            for number, call in enumerate(calls):
                self._scheduler.submit(call, partial(done, number))

        self._scheduler.wait_outside(start)
        return results

    def sleep(self, seconds: float) -> None:
        """Wait in a handler, while the scheduler runs other handlers."""
        if not self._scheduler.is_inside():
            time.sleep(seconds)
            return

        def start(resume: Callable[[Outcome], None]) -> None:
            loop = asyncio.get_running_loop
            self._mailbox.put(lambda: loop().call_later(seconds, resume, (None, None)))

        self._scheduler.wait_outside(start)

    def call_back(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> None:
        def begin() -> None:
            work = self._call_back(url, headers, body, seconds)
            task = asyncio.get_running_loop().create_task(work)
            self._callbacks.add(task)
            task.add_done_callback(self._callbacks.discard)

        if self._scheduler.is_inside():
            # Runs when the handler has returned, and so after its response.
            self._scheduler.submit(lambda: None, lambda _: begin())
        else:
            self._blocking.call_back(url, headers, body, seconds)

    async def _call_back(
        self, url: str, headers: Mapping[str, str], body: bytes, seconds: float
    ) -> None:
        attempts = CallbackAttempts(seconds)
        for wait, left in attempts:
            await asyncio.sleep(wait)
            try:
                attempts.answered((await self._post(url, headers, body, left)).status)
            except OutboundFailed as error:
                attempts.failed(error)
        attempts.report()

    def _begin(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        timeout: float,
        resume: Callable[[Outcome], None],
    ) -> None:
        async def work() -> None:
            try:
                resume((await self._post(url, headers, body, timeout), None))
            except OutboundFailed as error:
                resume((None, error))
            except Exception as error:  # the waiting handler must get an answer
                resume((None, OutboundFailed(type(error).__name__)))
                raise

        def ended(task: asyncio.Task[None]) -> None:
            self._under_way.discard(task)
            if task.cancelled():  # perhaps before its first step
                resume((None, OutboundTimeout(_STOPPING)))

        if self._given_up:
            resume((None, OutboundFailed(_STOPPING)))
            return
        task = asyncio.get_running_loop().create_task(work())
        self._under_way.add(task)
        task.add_done_callback(ended)

    async def _post(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> Response:
        if timeout <= 0:  # aiohttp would take this as no limit
            raise OutboundTimeout("no time is left for an answer")
        # Without the threshold, aiohttp rounds longer timeouts up to a whole second.
        limit = aiohttp.ClientTimeout(total=timeout, ceil_threshold=math.inf)
        try:
            self._check_literal(url)
            async with self._session.post(
                url, data=body, headers=headers, timeout=limit,
                allow_redirects=False,  # a redirect would lead away from the registered host
            ) as reply:  # fmt: skip
                return Response(reply.status, await _read(reply))
        except HostNotAllowed as error:
            raise OutboundFailed(str(error)) from None
        except aiohttp.ConnectionTimeoutError:
            raise OutboundFailed("no connection in time") from None
        except TimeoutError:
            raise OutboundTimeout("no answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise OutboundFailed(type(error).__name__) from None

    def _check_literal(self, url: str) -> None:
        """aiohttp does not resolve a host that is an IP address, so the resolver never sees it."""
        parts = urlsplit(url)
        if is_literal(parts.hostname or ""):
            self._rules.addresses(parts.hostname or "", parts.port or 0)


class _CheckedResolver(ThreadedResolver):
    """Resolves a name, and fails if the rules do not allow its addresses."""

    def __init__(self, rules: HostRules) -> None:
        super().__init__()
        self._rules = rules

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        if not self._rules.allow_private and not all(is_public(each["host"]) for each in found):
            raise HostNotAllowed(f"{host} {PRIVATE}")
        return found


async def _read(reply: aiohttp.ClientResponse) -> bytes:
    """The body, up to the size of the largest packet."""
    parts: list[bytes] = []
    left = LARGEST_REPLY
    while left > 0 and (part := await reply.content.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
