"""A gate between functions and their tables: it passes requests on as they are, and turns some of
them away as DynamoDB does when a table is asked for more than it can give."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from tests.e2e.client import Background

_TARGET = "X-Amz-Target"
_HOP_BY_HOP = {"connection", "content-length", "keep-alive", "transfer-encoding", "server", "date"}
_REFUSAL = json.dumps({
    "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
    "message": "The level of configured provisioned throughput for the table was exceeded.",
}).encode()  # fmt: skip


class Gate:
    def __init__(self, background: Background, emulator: str) -> None:
        self._background = background
        self._emulator = emulator
        self._share = 0.0
        self._tables: tuple[str, ...] = ()
        self._random = random.Random(7)
        self.refused: dict[str, int] = {}
        self.url = background.run(self._start())

    async def _start(self) -> str:
        self._session = ClientSession(
            timeout=ClientTimeout(total=60), connector=TCPConnector(limit=0), auto_decompress=False
        )
        app = web.Application(client_max_size=32 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    def close(self) -> None:
        async def end() -> None:
            await self._session.close()
            await self._runner.cleanup()

        self._background.run(end())

    @contextmanager
    def throttling(self, share: float, *tables: str) -> Iterator[None]:
        """Turn away this share of what is asked of these tables."""
        self._share, self._tables, self.refused = share, tables, {}
        try:
            yield
        finally:
            self._share = 0.0

    async def _pass(self, request: web.Request) -> web.Response:
        body = await request.read()
        operation = request.headers.get(_TARGET, "").partition(".")[2]
        if self._is_refused(body):
            self.refused[operation] = self.refused.get(operation, 0) + 1
            media_type = "application/x-amz-json-1.0"
            return web.Response(status=400, body=_REFUSAL, content_type=media_type)
        try:
            return await self._forward(request, body)
        except ClientError:  # the emulator ends before its functions do
            return web.Response(status=503)

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        """With its own Host, or the signature would not be that of the request."""
        async with self._session.request(
            request.method, self._emulator + request.path_qs, data=body, headers=request.headers
        ) as answer:
            headers = {
                name: value
                for name, value in answer.headers.items()
                if name.lower() not in _HOP_BY_HOP
            }
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    def _is_refused(self, body: bytes) -> bool:
        asked = any(f'"{table}"'.encode() in body for table in self._tables)
        return asked and self._random.random() < self._share
