"""Requests to peers from the local server. A handler in the hub must not block the others: its
requests go out from the event loop, where many wait at once for next to nothing."""

import asyncio
import logging
from collections.abc import Callable, Mapping

import aiohttp

from farthing.aws.outbound import LARGEST_REPLY, HttpOutbound
from farthing.ports.outbound import (
    OutboundFailed,
    OutboundTimeout,
    Response,
    attempts,
    may_be_taken_later,
)
from infra.local.server.workers import Mailbox
from infra.local.server.write_hub import Outcome, WriteHub

log = logging.getLogger("farthing")

# Each carries one packet at a time: with a next hop 100 ms away, 1,280 a second. A relay of our own
# kind takes 200 from an address, where it is not told otherwise.
_CONNECTIONS_TO_A_HOST = 128


class LocalOutbound:
    """Made in the event loop, and closed there."""

    def __init__(self, hub: WriteHub, mailbox: Mailbox) -> None:
        self._hub = hub
        self._mailbox = mailbox
        self._blocking = HttpOutbound()  # for threads that may wait
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=_CONNECTIONS_TO_A_HOST),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._under_way: set[asyncio.Task[None]] = set()
        self._callbacks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for callback in self._callbacks:
            callback.cancel()  # whoever misses it asks again
        await asyncio.gather(*self._callbacks, return_exceptions=True)
        await self._session.close()

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        if not self._hub.is_inside():
            return self._blocking.post(url, headers, body, timeout)

        def start(resume: Callable[[Outcome], None]) -> None:
            self._mailbox.put(lambda: self._begin(url, headers, body, timeout, resume))

        response: Response = self._hub.wait_outside(start)
        return response

    def call_back(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> None:
        def begin() -> None:
            work = self._call_back(url, headers, body, seconds)
            task = asyncio.get_running_loop().create_task(work)
            self._callbacks.add(task)
            task.add_done_callback(self._callbacks.discard)

        if self._hub.is_inside():
            # Runs when the handler is through, and so behind its response.
            self._hub.submit(lambda: None, lambda _: begin())
        else:
            self._blocking.call_back(url, headers, body, seconds)

    async def _call_back(
        self, url: str, headers: Mapping[str, str], body: bytes, seconds: float
    ) -> None:
        trouble = ""
        for wait, left in attempts(seconds):
            await asyncio.sleep(wait)
            try:
                status = (await self._post(url, headers, body, left)).status
            except OutboundFailed as error:
                trouble = str(error)
                continue
            trouble = f"status {status}" if status >= 300 else ""
            if not may_be_taken_later(status):
                break
        if trouble:
            log.warning("a callback was not taken: %s", trouble)

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
            except BaseException as error:  # whoever waits must not wait for ever
                resume((None, OutboundFailed(type(error).__name__)))
                raise

        task = asyncio.get_running_loop().create_task(work())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _post(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> Response:
        try:
            async with self._session.post(
                url, data=body, headers=headers, timeout=aiohttp.ClientTimeout(total=timeout),
                allow_redirects=False,  # a redirect would lead away from the registered host
            ) as reply:  # fmt: skip
                return Response(reply.status, await _read(reply))
        except aiohttp.ConnectionTimeoutError:
            raise OutboundFailed("no connection in time") from None
        except TimeoutError:
            raise OutboundTimeout("no answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise OutboundFailed(type(error).__name__) from None


async def _read(reply: aiohttp.ClientResponse) -> bytes:
    """The body, as far as it can be a packet."""
    parts: list[bytes] = []
    left = LARGEST_REPLY
    while left > 0 and (part := await reply.content.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
