"""Starting, stopping, staying alive, and not growing."""

import asyncio
import json
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import pytest

from farthing.settings import Settings
from infra.local.server import app as local_server
from infra.local.server.app import Server
from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.conftest import OPEN

FEW_SECONDS = 8  # generous for a loaded machine; it takes a fraction of one


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_with_clients_connected(start_relay, connect, number: signal.Signals):
    relay = start_relay(**OPEN)
    author = Author()
    clients = [connect(relay) for _ in range(10)]
    for client in clients:
        client.request("live", {"authors": [author.pubkey]})
    clients[0].store(author.event())

    began = time.monotonic()
    relay.send_signal(number)
    assert relay.wait() == 0
    assert time.monotonic() - began < FEW_SECONDS
    assert [client.wait_for_close() for client in clients] == [1001] * 10


def test_it_stops_also_when_nobody_reads_what_it_prints(start_relay):
    relay = start_relay(**OPEN)
    relay.process.stdout.close()

    assert relay.stop() in (0, 120)  # Python's own, where it cannot flush what it has printed


def test_a_client_that_does_not_answer_does_not_hold_up_the_stop(start_relay, connect):
    relay = start_relay(**OPEN, max_send_buffer=100_000)
    author, deaf, publisher = Author(), connect(relay), connect(relay)
    deaf.request("live", {"authors": [author.pubkey]})
    for number in range(40):  # it reads none of them
        publisher.publish(author.event(f"{number} " + "x" * 90_000))
    deaf.send("REQ", "stored", {"authors": [author.pubkey]})

    began = time.monotonic()
    assert relay.stop() == 0
    assert time.monotonic() - began < FEW_SECONDS


def test_a_stop_asks_no_more_relays(start_relay, connect):
    """One round of upkeep may ask 200 relays, eight at a time, and wait 10 s for each."""
    asked, taken = threading.Semaphore(0), list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent, ExitStack() as connections:

        def take() -> None:
            with suppress(OSError):
                while True:
                    taken.append(connections.enter_context(silent.accept()[0]))
                    asked.release()

        threading.Thread(target=take, daemon=True).start()
        relay = start_relay(**OPEN, upkeep_seconds=1, gather_seconds=60, follow_content="off")
        owner = Author((relay.data / "secret-key").read_text().strip())
        place = f"ws://127.0.0.1:{silent.getsockname()[1]}"
        follows = [["p", Author().pubkey, f"{place}/{number}"] for number in range(40)]
        connect(relay).store(owner.event(kind=3, tags=follows))
        for _ in range(8):
            assert asked.acquire(timeout=30)

        assert relay.stop() == 0
        assert len(taken) == 8


def test_it_starts_again_on_what_it_left(start_relay, connect):
    author = Author()
    ids = []
    for _ in range(3):
        relay = start_relay(**OPEN)
        client = connect(relay)
        assert sorted(client.ids({"authors": [author.pubkey]})) == sorted(ids)
        client.store(event := author.event())
        ids.append(event["id"])
        assert relay.stop() == 0
        relay.check_log()


def test_nothing_of_an_earlier_run_is_delivered_to_the_next(start_relay, connect):
    author = Author()
    relay = start_relay(**OPEN)
    client = connect(relay)
    client.send_text(*(json.dumps(["EVENT", author.event()]) for _ in range(50)))
    client.wait_for("OK")
    relay.kill()

    client = connect(start_relay(**OPEN))
    stored = client.request("live", {"authors": [author.pubkey]})
    client.store(event := author.event())
    while (frame := client.wait_for("EVENT", "live"))[2] != event:
        # Undelivered when it was killed, so it may come late, but not from nowhere.
        assert frame[2]["id"] in {old["id"] for old in stored}


@pytest.fixture
def inside(background: Background, tmp_path: Path):
    """A server in this process, to look into."""
    settings = Settings(port=0, data=str(tmp_path / "data"), **OPEN)

    async def make() -> Server:
        server = Server(settings)
        await server.start()
        return server

    server = background.run(make())
    yield server
    background.run(server.stop())


def session_items(server: Server) -> int:
    """How many items the server keeps about connections and subscriptions."""
    return sum(len(part.items) for part in server._engine._memory._partitions.values())


def test_closed_subscriptions_leave_nothing_behind(background: Background, inside: Server):
    client = RawClient(background, f"ws://{inside.settings.authority}")
    assert client.count({"kinds": [1]}) == {"count": 0}
    at_first = session_items(inside)
    for start in range(0, 3000, 30):
        names = [f"s{number}" for number in range(start, start + 30)]
        filters = [{"kinds": [1, 2], "#t": ["a", "b"]}, {"authors": [Author().pubkey]}]
        client.send_text(*(json.dumps(["REQ", name, *filters]) for name in names))
        client.send_text(*(json.dumps(["CLOSE", name]) for name in names))
        client.wait_for("EOSE", names[-1])
        client.inbox.clear()
    client.count({"kinds": [1]})
    assert session_items(inside) == at_first

    client.close()
    background.run(until(lambda: session_items(inside) == 0))


async def until(holds) -> None:
    while not holds():
        await asyncio.sleep(0)


def test_pings_find_the_dead_and_keep_the_living(
    background: Background, inside: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local_server, "_PING_SECONDS", 0.2)
    url = f"ws://{inside.settings.authority}"

    async def connect(autoping: bool):
        session = aiohttp.ClientSession()
        return session, await session.ws_connect(url, autoping=autoping)

    async def scenario() -> None:
        living_session, living = await connect(autoping=True)
        dead_session, dead = await connect(autoping=False)
        # The living answers pings while it waits; the dead gets them and says nothing.
        waiting = asyncio.create_task(living.receive())
        kinds = []
        while not kinds or kinds[-1] is aiohttp.WSMsgType.PING:
            kinds.append((await dead.receive()).type)
        assert aiohttp.WSMsgType.PING in kinds
        await until(lambda: len(inside._connections.all()) == 1)
        assert not waiting.done()
        await living.send_str('["COUNT","c",{"kinds":[1]}]')
        assert (await waiting).type is aiohttp.WSMsgType.TEXT
        for session in (living_session, dead_session):
            await session.close()

    background.run(scenario())


@pytest.mark.parametrize("verb", ["NEG-OPEN", "\\u004eEG-OPEN"])
def test_syncs_keep_nobody_else_waiting(background: Background, inside: Server, verb: str):
    """However many are being set up, by their own route or by the default one."""
    at_work, may_end = threading.Semaphore(0), threading.Event()

    def set_up(_event, _context) -> dict:
        at_work.release()
        may_end.wait()
        return {"statusCode": 200}

    inside._routes.update({"NEG-OPEN": set_up, "$default": set_up})
    syncing = [RawClient(background, f"ws://{inside.settings.authority}") for _ in range(20)]
    try:
        for client in syncing:
            client.send_text(f'["{verb}","s",{{}},"6100000200"]')
        assert at_work.acquire(timeout=FEW_SECONDS)
        other = RawClient(background, f"ws://{inside.settings.authority}")
        assert other.count({"kinds": [1]}) == {"count": 0}
        other.close()
    finally:
        may_end.set()
        for client in syncing:
            client.close()


def test_large_messages_are_read_only_as_fast_as_they_are_answered(
    background: Background, inside: Server
):
    may_end = threading.Event()

    def answer(event, _context) -> dict:
        may_end.wait()
        return {"statusCode": 200, "body": '["NOTICE","answered"]'}

    inside._routes["REQ"] = answer
    client = RawClient(background, f"ws://{inside.settings.authority}")
    try:
        client.send_text(*[json.dumps(["REQ", "x", "y" * 120_000])] * 30)
        (socket,) = inside._connections.all()
        background.run(until(lambda: not socket._room.is_set()))
        assert socket._in_hand < 1024 * 1024 + 131_072
    finally:
        may_end.set()
    for _ in range(30):
        assert client.wait_for("NOTICE")
    client.close()
