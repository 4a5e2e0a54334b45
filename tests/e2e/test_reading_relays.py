"""Reading another relay as a client of it: a real one, and ones that misbehave."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web

from farthing.agent.relay_client import SocketRelays
from farthing.ports.relays import RelayFailed
from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.relay_process import RelayProcess

ALL = [{"kinds": [1]}]


def test_a_real_relay(relay: RelayProcess, client: RawClient) -> None:
    author = Author()
    client.store(*(author.event(f"note {number}") for number in range(5)))
    wanted = [{"authors": [author.pubkey]}]
    found = SocketRelays().read(relay.url, wanted, 100, 10)
    assert {event["content"] for event in found} == {f"note {number}" for number in range(5)}
    assert len(SocketRelays().read(relay.url, wanted, 3, 10)) == 3


def test_one_that_refuses(relay: RelayProcess) -> None:
    with pytest.raises(RelayFailed):
        SocketRelays().read(relay.url, [{"kinds": "all"}], 10, 10)


def test_one_that_is_not_there() -> None:
    with pytest.raises(RelayFailed):
        SocketRelays().read("ws://127.0.0.1:1", ALL, 10, 5)


Frames = Callable[[], AsyncIterator[str]]


async def silence() -> AsyncIterator[str]:
    await asyncio.sleep(60)
    yield ""


async def junk() -> AsyncIterator[str]:
    yield "junk"


async def endless() -> AsyncIterator[str]:
    while True:
        yield '["EVENT","farthing",{}]'


async def huge() -> AsyncIterator[str]:
    yield '["EVENT","farthing",{"content":"' + "x" * 2_000_000 + '"}]'


@pytest.mark.parametrize("frames", [silence, junk, huge])
def test_one_that_misbehaves_costs_little(background: Background, frames: Frames) -> None:
    with (
        misbehaving(background, frames) as url,
        pytest.raises(RelayFailed),
    ):
        SocketRelays().read(url, ALL, 10, 1)


def test_one_that_never_ends_is_cut_off(background: Background) -> None:
    with misbehaving(background, endless) as url:
        assert len(SocketRelays().read(url, ALL, 10, 10)) == 10


@contextmanager
def misbehaving(background: Background, frames: Frames) -> Iterator[str]:
    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        try:
            async for frame in frames():
                await socket.send_str(frame)
        except (ConnectionError, asyncio.CancelledError):
            pass
        return socket

    async def start() -> tuple[web.ServerRunner, int]:
        runner = web.ServerRunner(web.Server(serve), shutdown_timeout=0.1)  # type: ignore[arg-type]
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port: int = runner.addresses[0][1]
        return runner, port

    runner, port = background.run(start())
    try:
        yield f"ws://127.0.0.1:{port}"
    finally:
        background.run(runner.cleanup(), seconds=30)
