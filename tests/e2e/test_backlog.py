"""What waits for clients who do not read: bounded in bytes, for each and for all together."""

import asyncio
from collections import deque
from functools import wraps

import pytest

from farthing.ports.connections import Delivery
from infra.local.server import sockets
from infra.local.server.backlog import STALLED_SECONDS, Backlog, Line
from infra.local.server.gateway import SocketContext
from infra.local.server.meter import LocalMeter
from infra.local.server.sockets import LocalConnections, Socket

MOST_OF_ONE, MOST_OF_ALL = 1000, 3000


def in_loop(test):
    @wraps(test)
    def run(**fixtures) -> None:
        asyncio.run(test(**fixtures))

    return run


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class LoopThatIsBusy:
    """Calls for the loop, made when the test says so."""

    def __init__(self) -> None:
        self.calls = deque()

    def put(self, call) -> None:
        self.calls.append(call)

    async def run(self) -> None:
        while self.calls:
            self.calls.popleft()()
        await asyncio.sleep(0)


class Writers:
    """The scheduler, of which only this is asked."""

    inside = False

    def is_inside(self) -> bool:
        return self.inside


class Unread:
    """A client that takes nothing, or everything."""

    closed = False

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.reads = asyncio.Event()

    async def send_frame(self, frame: bytes, _opcode) -> None:
        await self.reads.wait()
        self.got.append(frame)

    async def close(self, code: int, drain: bool) -> None:
        self.closed = code


class House:
    def __init__(self) -> None:
        self.clock, self.loop, self.scheduler, self.meter = (
            Clock(),
            LoopThatIsBusy(),
            Writers(),
            LocalMeter(),
        )
        self.backlog = Backlog(MOST_OF_ONE, MOST_OF_ALL, self.clock)
        self.connections = LocalConnections(self.loop, self.backlog, self.scheduler, self.meter, 8)

    def client(self) -> Socket:
        context = SocketContext("127.0.0.1", "relay")
        socket = Socket(Unread(), None, context, {}, None, None, None, self.connections)
        self.connections.add(socket)
        return socket

    def post(self, socket: Socket, *frames: str) -> Delivery:
        return self.connections.post(socket.context.connection_id, frames)

    def post_each(self, *frames: tuple[Socket, str]) -> dict[str, Delivery]:
        return self.connections.post_each((s.context.connection_id, frame) for s, frame in frames)

    def queued(self, socket: Socket) -> int:
        return sum(map(len, socket._outgoing))


@pytest.fixture
def house(monkeypatch) -> House:
    monkeypatch.setattr(sockets, "_WAIT_FOR_SLOW_CLIENT", 0.0)
    monkeypatch.setattr(sockets, "_WAIT_FOR_LIVE_CLIENT", 0.0)
    return House()


@in_loop
async def test_bytes_are_counted_and_not_characters(house: House) -> None:
    slow = house.client()
    assert house.post(slow, "é" * 300) is Delivery.DELIVERED
    assert house.post(slow, "é" * 300) is Delivery.SLOW
    await house.loop.run()
    assert house.queued(slow) == 600


@in_loop
async def test_a_chunk_of_frames_does_not_go_over(house: House) -> None:
    slow = house.client()
    assert house.post(slow, *("x" * 90 for _ in range(100))) is Delivery.SLOW
    await house.loop.run()
    assert house.queued(slow) == 990


@in_loop
async def test_a_frame_larger_than_the_bound_goes_alone(house: House) -> None:
    client = house.client()
    assert house.post(client, "x" * 2000) is Delivery.DELIVERED
    assert house.post(client, "x") is Delivery.SLOW


@in_loop
async def test_all_together_are_bounded_and_those_who_take_nothing_go_first(house: House) -> None:
    clients = [house.client() for _ in range(10)]
    for _ in range(4):
        sizes = range(100, 200, 10)  # the last is the fullest
        house.post_each(*((c, "x" * size) for c, size in zip(clients, sizes, strict=True)))
        house.clock.now += STALLED_SECONDS
        await house.loop.run()
        assert sum(map(house.queued, clients)) <= MOST_OF_ALL
        assert house.backlog.waiting == sum(map(house.queued, clients))
    gone = sum(client.closing for client in clients)
    assert clients[-1].closing and 0 < gone < len(clients)
    assert f"clients_too_slow_total {gone}.0\n" in house.meter.text().decode()


@in_loop
async def test_one_that_reads_is_not_cut_off_for_those_who_do_not(house: House) -> None:
    deaf, quick = [house.client() for _ in range(3)], house.client()
    quick._response.reads.set()
    writer = asyncio.create_task(quick.write())
    for client in deaf:
        assert house.post(client, "x" * 950) is Delivery.DELIVERED
    house.clock.now += STALLED_SECONDS
    for _ in range(30):
        assert house.post_each((quick, "y" * 500)) == {}
        await house.loop.run()
    assert len(quick._response.got) == 30
    assert [client.closing for client in deaf].count(True) == 1, "one is enough"
    writer.cancel()


@in_loop
async def test_room_comes_back_when_a_client_leaves(house: House) -> None:
    clients = [house.client() for _ in range(4)]
    for client in clients[:3]:
        assert house.post(client, "x" * 1000) is Delivery.DELIVERED
    assert house.post(clients[3], "x" * 1000) is Delivery.SLOW
    house.connections.remove(clients[0])
    assert house.post(clients[3], "x" * 1000) is Delivery.DELIVERED


@in_loop
async def test_an_answer_ends_even_where_its_frames_have_filled_the_line(house: House) -> None:
    client = house.client()
    assert house.post(client, "x" * 1000) is Delivery.DELIVERED
    await house.loop.run()
    client._finished(0, {"body": "EOSE"})
    await house.loop.run()
    assert [*client._outgoing][-1] == b"EOSE"
    assert not client.closing


@in_loop
async def test_replies_that_nobody_reads_are_bounded_as_well(house: House) -> None:
    client = house.client()
    for _ in range(100):
        client._finished(0, {"body": "x" * 100})
        await house.loop.run()
        assert house.queued(client) <= MOST_OF_ONE + 100
    assert client.closing


@in_loop
async def test_those_who_write_do_not_wait_for_a_slow_client(house: House, monkeypatch) -> None:
    monkeypatch.setattr(sockets, "_WAIT_FOR_SLOW_CLIENT", 3600.0)
    slow, house.scheduler.inside = house.client(), True
    assert house.post(slow, "x" * 1000, "x" * 1000) is Delivery.SLOW


def test_whoever_waits_is_told_of_room() -> None:
    backlog = Backlog(MOST_OF_ONE, MOST_OF_ALL)
    line = Line(lambda: None)
    assert backlog.take(line, 1000)
    asyncio.run(_take_and_give_back(backlog, line))
    assert line.waiting == 400


async def _take_and_give_back(backlog: Backlog, line: Line) -> None:
    waiting = asyncio.create_task(asyncio.to_thread(backlog.take_in_time, line, 400, 60.0))
    while not backlog._awaited:
        await asyncio.sleep(0)
    backlog.give_back(line, 1000)
    assert await waiting


@pytest.mark.parametrize("tell", [Backlog.end, Backlog.close])
def test_whoever_waits_is_told_of_the_end(tell) -> None:
    backlog = Backlog(MOST_OF_ONE, MOST_OF_ALL)
    line = Line(lambda: None)
    assert backlog.take(line, 1000)

    async def scene() -> bool:
        waiting = asyncio.create_task(asyncio.to_thread(backlog.take_in_time, line, 400, 60.0))
        while not backlog._awaited:
            await asyncio.sleep(0)
        tell(backlog, line)
        return await waiting

    assert asyncio.run(scene()) is False
