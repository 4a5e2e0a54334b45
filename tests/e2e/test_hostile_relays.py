"""Relays of followed keys that lie, flood, stall or redirect: bounded, told, and others served."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.relay_process import RelayProcess
from tests.e2e.test_following import CACHE, owner_of, run, until

Start = Callable[..., RelayProcess]
Frames = Callable[[str, Author], AsyncIterator[str]]
TIGHT = {
    **CACHE, "feed_seconds": 3, "gather_seconds": 2, "max_feed_bytes": 3_000_000,
    "max_feed_events": 2000, "max_feed_faults": 20, "feed_retry_seconds": 2,
}  # fmt: skip
MOST_GROWTH_KB = 80_000


async def endless(name: str, author: Author) -> AsyncIterator[str]:
    """The same true event for ever."""
    frame = json.dumps(["EVENT", name, author.event("again")])
    while True:
        yield frame


async def dripping(_name: str, _author: Author) -> AsyncIterator[str]:
    while True:
        await asyncio.sleep(0.2)
        yield '["NOTICE","soon"]'


async def forged(name: str, author: Author) -> AsyncIterator[str]:
    while True:
        yield json.dumps(["EVENT", name, {**author.event(), "content": "forged"}])


async def of_others(name: str, _author: Author) -> AsyncIterator[str]:
    while True:
        yield json.dumps(["EVENT", name, Author().event("who am I")])


async def enormous(name: str, author: Author) -> AsyncIterator[str]:
    yield json.dumps(["EVENT", name, author.event("x" * 10_000_000)])


HOSTILE: dict[str, tuple[Frames, str]] = {
    "endless": (endless, "as much as it may"),
    "dripping": (dripping, "the relay says: soon"),
    "forged": (forged, "not signed"),
    "of others": (of_others, "not requested"),
    "enormous": (enormous, "message too big"),
}


@contextmanager
def hostile(background: Background, frames: Frames, author: Author) -> Iterator[str]:
    async def converse(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            verb, name, *_ = json.loads(message.data)
            if verb != "REQ":
                continue
            try:
                async for frame in frames(name, author):
                    await socket.send_str(frame)
            except ConnectionError:
                break
        return socket

    with serving(background, converse) as url:
        yield url


@contextmanager
def serving(background: Background, handler: Any) -> Iterator[str]:
    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = background.run(start())
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        background.run(runner.cleanup())


@contextmanager
def all_of_them(background: Background) -> Iterator[dict[str, tuple[str, Author]]]:
    def enter(left: list[str], found: dict[str, tuple[str, Author]]) -> Iterator[Any]:
        if not left:
            yield found
            return
        author = Author()
        with hostile(background, HOSTILE[left[0]][0], author) as url:
            yield from enter(left[1:], {**found, left[0]: (url, author)})

    yield from enter(list(HOSTILE), {})


def test_hostile_relays_are_bounded_and_told_and_others_are_served(
    start_relay: Start, background: Background
) -> None:
    trapped: list[str] = []

    async def trap(request: web.Request) -> web.Response:
        trapped.append(request.path)
        return web.Response()

    honest = start_relay("honest")
    alice = start_relay("alice", **TIGHT)
    reader, writer = RawClient(background, alice.url), RawClient(background, honest.url)
    reader.request("honest", {"authors": [honest.pubkey], "kinds": [1]})
    before = alice.memory_kb()
    with serving(background, trap) as inside, all_of_them(background) as relays:

        async def redirect(_: web.Request) -> web.Response:
            raise web.HTTPFound(f"{inside}/secret")

        with serving(background, redirect) as redirecting:
            somebody = Author()
            tags = [
                *([author.pubkey, url] for url, author in relays.values()),
                [somebody.pubkey, redirecting],
                [honest.pubkey, honest.url],
            ]
            follows = owner_of(alice).event("", kind=3, tags=[["p", *each] for each in tags])
            reader.store(follows)
            owner = owner_of(honest)
            for number in range(3):
                note = owner.event(f"honest {number}")
                writer.store(note)
                assert reader.wait_for("EVENT", "honest")[2]["id"] == note["id"]
            troubles = {url: HOSTILE[name][1] for name, (url, _) in relays.items()}
            troubles[redirecting] = "cannot follow redirect"
            wait_until_told(alice, troubles)
            assert alice.memory_kb() - before < MOST_GROWTH_KB
            # And whoever was bounded did not take the others' time.
            note = owner.event("still there")
            writer.store(note)
            assert reader.wait_for("EVENT", "honest")[2]["id"] == note["id"]
            assert alice.stop() == 0
    assert trapped == []
    reader.close()
    writer.close()


def wait_until_told(alice: RelayProcess, troubles: dict[str, str]) -> None:
    ends = time.monotonic() + 40
    while True:
        told = run(alice, "relays")
        lines = {line.split()[0]: line for line in told.splitlines() if line.startswith("ws")}
        if all(what in lines.get(url, "") for url, what in troubles.items()):
            return
        if time.monotonic() > ends:
            pytest.fail(f"{told}\nexpected {troubles}")


def test_a_relay_that_never_answers_keeps_nobody_waiting(
    start_relay: Start, background: Background
) -> None:
    """Neither who is followed next, nor who stops the server."""
    held: list[asyncio.StreamWriter] = []
    silent = background.run(
        asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    )
    url = f"ws://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    honest, alice = start_relay("honest"), start_relay("alice", **CACHE)
    run(alice, "follow", Author().pubkey, "--relay", url)
    reader, writer = RawClient(background, alice.url), RawClient(background, honest.url)
    reader.request("honest", {"authors": [honest.pubkey], "kinds": [1]})
    note = owner_of(honest).event("in time")
    writer.store(note)
    until(lambda: len(held) > 0)

    run(alice, "follow", Author().pubkey, "--relay", url)  # one more key at the same relay
    run(alice, "follow", honest.pubkey, "--relay", honest.url)

    assert reader.wait_for("EVENT", "honest")[2]["id"] == note["id"]
    assert alice.stop() == 0
    background.run(close_all(silent, held))


async def close_all(server: asyncio.Server, held: list[asyncio.StreamWriter]) -> None:
    for each in held:
        each.close()
    server.close()
