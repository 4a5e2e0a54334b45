"""Reading another relay as a client of it: a real one, and ones that misbehave."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from socket import create_server
from threading import Event, Thread
from typing import Any

import pytest
from aiohttp import web

from farthing.agent.relay_client import SocketRelays
from farthing.nostr.negentropy import SealedVector
from farthing.ports.hosts import ANYWHERE
from farthing.ports.relays import (
    Allowance,
    AllowanceSpent,
    ReadLimits,
    RelayFailed,
    SharedAllowance,
)
from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.relay_process import RelayProcess

ALL = [{"kinds": [1]}]
HERE = SocketRelays(ANYWHERE)


def limits(events: int = 10, seconds: float = 10, octets: int = 10**6) -> ReadLimits:
    return ReadLimits(events, octets, seconds)


def test_events_of_a_relay_are_read_up_to_the_limit(relay: RelayProcess, client: RawClient) -> None:
    author = Author()
    client.store(*(author.event(f"note {number}") for number in range(5)))
    wanted = [{"authors": [author.pubkey]}]
    found = list(HERE.read(relay.url, wanted, limits(100)))
    assert {event["content"] for event in found} == {f"note {number}" for number in range(5)}
    assert len(list(HERE.read(relay.url, wanted, limits(3)))) == 3


def test_a_refused_request_fails(relay: RelayProcess) -> None:
    with pytest.raises(RelayFailed):
        list(HERE.read(relay.url, [{"kinds": "all"}], limits()))


def test_one_that_is_not_there() -> None:
    with pytest.raises(RelayFailed, match="cannot be reached: the connection was refused"):
        list(HERE.read("ws://127.0.0.1:1", ALL, limits(seconds=5)))


def test_a_stop_ends_a_connection_and_opens_no_more() -> None:
    relays, ended = SocketRelays(ANYWHERE), Event()
    with create_server(("127.0.0.1", 0)) as silent:
        place = f"ws://127.0.0.1:{silent.getsockname()[1]}"

        def read() -> None:
            with suppress(RelayFailed):
                list(relays.read(place, ALL, limits(seconds=1000)))
            ended.set()

        Thread(target=read, daemon=True).start()
        connection, _ = silent.accept()
        with connection:
            relays.stop()
            assert ended.wait(30)
        silent.setblocking(False)
        with pytest.raises(RelayFailed, match="stopping"):
            list(relays.read(place, ALL, limits()))
        with pytest.raises(BlockingIOError):
            silent.accept()


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
        list(HERE.read(url, ALL, limits(seconds=1)))


def test_one_that_never_ends_is_cut_off(background: Background) -> None:
    with misbehaving(background, endless) as url:
        assert len(list(HERE.read(url, ALL, limits()))) == 10


async def wordy() -> AsyncIterator[str]:
    while True:
        yield '["EVENT","farthing",{"content":"' + "x" * 10_000 + '"}]'


def test_one_that_sends_more_octets_than_allowed_is_cut_off(background: Background) -> None:
    with misbehaving(background, wordy) as url:
        found = list(HERE.read(url, ALL, limits(10**6, octets=100_000)))
    assert len(found) == 9


async def wide() -> AsyncIterator[str]:
    while True:
        yield '["EVENT","farthing",{"content":"' + "\N{GRINNING FACE}" * 2500 + '"}]'


def test_octets_are_counted_and_not_characters(background: Background) -> None:
    with misbehaving(background, wide) as url:
        found = list(HERE.read(url, ALL, limits(10**6, octets=100_000)))
    assert len(found) == 9


def test_pings_count_as_octets(background: Background) -> None:
    async def ping(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        with suppress(ConnectionError):
            while True:
                await socket.ping(b"x" * 100)
        return socket

    allowance = Allowance(10, 100_000)
    with (
        serving(background, ping) as url,
        pytest.raises(RelayFailed, match="connection ended"),
        HERE.session(url, allowance, 20) as session,
    ):
        list(session.read(ALL))
    with pytest.raises(AllowanceSpent):
        allowance.check()


def test_a_relay_in_our_own_network_is_not_asked(background: Background) -> None:
    with misbehaving(background, endless) as url, pytest.raises(RelayFailed, match="private"):
        list(SocketRelays().read(url, ALL, limits()))


def test_a_redirect_is_not_followed(background: Background) -> None:
    with misbehaving(background, endless) as inner:

        async def lead_away(_request: web.Request) -> web.Response:
            return web.Response(status=302, headers={"Location": inner})

        with serving(background, lead_away) as url, pytest.raises(RelayFailed):
            list(HERE.read(url, ALL, limits()))


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

    with serving(background, serve) as url:
        yield url


@contextmanager
def serving(background: Background, serve: Any) -> Iterator[str]:
    async def start() -> tuple[web.ServerRunner, int]:
        runner = web.ServerRunner(web.Server(serve), shutdown_timeout=0.1)
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


def test_a_session_reads_follows_reconciles_and_publishes(
    relay: RelayProcess, client: RawClient
) -> None:
    author = Author()
    stored = [author.event(f"note {number}") for number in range(5)]
    client.store(*stored)
    wanted = {"authors": [author.pubkey]}
    nothing = SealedVector.seal_records(bytearray())

    with HERE.session(relay.url, Allowance(1000, 10**6), 10) as session:
        read = [event["id"] for event in session.read([wanted])]
        changes = list(session.changes(wanted, 0))
        needed = list(session.reconcile(wanted, nothing))
        told = session.publish(author.event("one more"))
        again = session.publish(stored[0])

    ids = [event["id"] for event in stored]
    assert sorted(read) == sorted(needed) == sorted(ids)
    assert [each.event["id"] for each in changes if each.event] == ids
    assert (changes[-1].event, changes[-1].truncated) == (None, False)
    assert changes[-1].number >= changes[-2].number
    assert (told.accepted, again.accepted, again.prefix) == (True, True, "duplicate")


def test_a_session_hears_of_new_events(relay: RelayProcess, client: RawClient) -> None:
    author = Author()
    wanted = {"authors": [author.pubkey]}
    heard: list[Any] = []
    with HERE.session(relay.url, Allowance(1000, 10**6), 10) as session:
        session.subscribe("live", [wanted], heard.append)
        assert list(session.read([wanted])) == []  # the subscription stands
        new = author.event("new")
        client.store(new)
        while not heard:
            session.wait()
    assert heard[0]["id"] == new["id"]


def test_the_information_document_is_read_or_fails(relay: RelayProcess) -> None:
    assert "CF" in HERE.information(relay.url, 10)["supported_nips"]
    for url in ("ws://127.0.0.1:1", "https://127.0.0.1:1"):
        with pytest.raises(RelayFailed):
            HERE.information(url, 1)


def test_an_allowance_of_all_relays_ends_before_that_of_one() -> None:
    together = Allowance(10, 10**6, spent="together")
    one, other = (Allowance(100, 10**6, behind=together) for _ in range(2))
    one.spend(6, 100)
    with pytest.raises(AllowanceSpent, match="together"):
        other.spend(6, 100)
    with pytest.raises(AllowanceSpent, match="together"):
        one.check()


def test_relays_that_flood_leave_a_part_for_each_of_the_others() -> None:
    now = [0.0]
    together = SharedAllowance(10**9, 8000, 4, window_seconds=60, clock=lambda: now[0])

    def sent(name: str) -> int:
        """Octets that a relay can send now, by a connection of its own each time."""
        share = Allowance(10**9, 10**9, behind=together.of(name))
        for octets in range(0, 9000, 100):
            try:
                share.check()
                share.spend(1, 100)
            except AllowanceSpent:
                return octets
        pytest.fail("without end")

    assert sent("first flood") == 4000 + 1000
    assert [sent("second flood"), sent("honest")] == [1000, 1000]
    assert [sent("first flood"), sent("honest")] == [0, 0]
    with pytest.raises(AllowanceSpent, match="all relays together"):
        together.of("honest").check()
    assert sum(sent(f"new name {n}") for n in range(50)) == 1000, "8000 in all"
    now[0] = 60.0
    assert sent("honest") == 4000 + 1000


def test_an_allowance_is_renewed_with_its_window() -> None:
    now = [0.0]
    allowance = Allowance(10, 10, window_seconds=60, clock=lambda: now[0])
    with pytest.raises(AllowanceSpent):
        allowance.spend(1, 11)
    with pytest.raises(AllowanceSpent):
        allowance.check()
    now[0] = 60.0
    allowance.check()
    allowance.spend(10, 10)
