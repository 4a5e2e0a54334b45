"""A relay that does what a test tells it, for what real ones do only when something is wrong."""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import WSMsgType, web

from tests.e2e.client import Background

Frame = list[Any]
Send = Callable[..., Awaitable[None]]
# Called with each frame that comes, and with the way to answer it; True closes the connection.
Script = Callable[[Frame, Send], Awaitable[bool | None]]


@contextmanager
def fake_relay(background: Background, script: Script) -> Iterator[str]:
    """Its URL."""

    async def converse(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)

        async def send(*parts: object) -> None:
            await socket.send_str(json.dumps(parts))

        async for message in socket:
            if message.type is WSMsgType.TEXT and await script(json.loads(message.data), send):
                await socket.close()
        return socket

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/", converse)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = background.run(start())
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        background.run(runner.cleanup())
