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

    def is_inside(self) -> bool:
        return False  # all posts of these tests are handlers', in other threads

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
    """A client that takes nothing, or everything: the response and the transport to it."""

    closed = False
    reads = False

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.waiting = 0
        self.caught_up = asyncio.Event()

    def write(self, octets: bytes) -> None:
        self.got.append(octets)
        if not self.reads:
            self.waiting += len(octets)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        self.closed = True

    async def drain(self) -> None:
        await self.caught_up.wait()

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
        self.unread = Unread()
        socket = Socket(
            self.unread, self.unread.drain, self.unread, context, {}, None, None, None,
            self.connections,
        )  # fmt: skip
        self.connections.add(socket)
        return socket

    def post(self, socket: Socket, *frames: str) -> Delivery:
        return self.connections.post(socket.context.connection_id, frames)

    def post_each(self, *frames: tuple[Socket, str]) -> dict[str, Delivery]:
        return self.connections.post_each((s.context.connection_id, frame) for s, frame in frames)

    def queued(self, socket: Socket) -> int:
        return socket._unsent + sum(map(len, socket._outgoing))


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
    quick._response.reads = True
    for client in deaf:
        assert house.post(client, "x" * 950) is Delivery.DELIVERED
    house.clock.now += STALLED_SECONDS
    for _ in range(30):
        assert house.post_each((quick, "y" * 500)) == {}
        await house.loop.run()
    assert b"".join(quick._response.got).count(b"y" * 500) == 30
    assert [client.closing for client in deaf].count(True) == 1, "one is enough"


@in_loop
async def test_a_client_is_not_cut_off_because_others_have_just_filled_the_room(
    house: House,
) -> None:
    others, client = [house.client() for _ in range(3)], house.client()
    for other in others:
        assert house.post(other, "x" * 1000) is Delivery.DELIVERED
    assert house.post(client, "y" * 500) is Delivery.BUSY
    client._reply(b"y" * 90)
    await house.loop.run()
    assert not client.closing
    assert house.backlog.waiting == MOST_OF_ALL + 90


@in_loop
async def test_what_waits_is_written_when_the_client_has_caught_up(house: House) -> None:
    client = house.client()
    writer = asyncio.create_task(client.write())
    assert house.post(client, "x" * 600) is Delivery.DELIVERED
    await house.loop.run()
    assert house.post(client, "y" * 400) is Delivery.DELIVERED
    await house.loop.run()
    assert b"y" not in b"".join(house.unread.got)
    assert house.post(client, "z") is Delivery.SLOW
    house.unread.reads, house.unread.waiting = True, 0
    house.unread.caught_up.set()
    while client.line.waiting:
        await asyncio.sleep(0)
    assert b"".join(house.unread.got).endswith(b"y" * 400)
    assert house.post(client, "z" * 1000) is Delivery.DELIVERED
    writer.cancel()


@in_loop
async def test_frames_that_are_ready_together_go_out_by_one_write(house: House) -> None:
    client = house.client()
    client._response.reads = True
    frames = ["a" * 10, "b" * 125, "c" * 126, "d" * 300]
    assert house.post(client, *frames) is Delivery.DELIVERED
    client._finished(0, {"body": "EOSE"})
    await house.loop.run()
    heads = [b"\x81\x04", b"\x81\x0a", b"\x81\x7d", b"\x81\x7e\x00\x7e", b"\x81\x7e\x01\x2c"]
    payloads = [b"EOSE", *(frame.encode() for frame in frames)]
    assert house.unread.got == [b"".join(map(bytes.__add__, heads, payloads))]


@in_loop
async def test_a_frame_longer_than_two_octets_tell(house: House, monkeypatch) -> None:
    house.backlog._most_of_one = house.backlog._most_of_all = 10**6
    client = house.client()
    assert house.post(client, "x" * 65536) is Delivery.DELIVERED
    await house.loop.run()
    assert house.unread.got[0].startswith(b"\x81\x7f" + (65536).to_bytes(8, "big") + b"x")


@in_loop
async def test_room_comes_back_when_a_client_leaves(house: House) -> None:
    clients = [house.client() for _ in range(4)]
    for client in clients[:3]:
        assert house.post(client, "x" * 1000) is Delivery.DELIVERED
    assert house.post(clients[3], "x" * 1000) is Delivery.BUSY
    house.connections.remove(clients[0])
    assert house.post(clients[3], "x" * 1000) is Delivery.DELIVERED


@in_loop
async def test_an_answer_ends_even_where_its_frames_have_filled_the_line(house: House) -> None:
    client = house.client()
    assert house.post(client, "x" * 1000) is Delivery.DELIVERED
    await house.loop.run()
    client._finished(0, {"body": "EOSE"})
    await house.loop.run()
    assert b"".join([*house.unread.got, *client._outgoing]).endswith(b"EOSE")
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


def test_a_waiting_sender_goes_on_when_there_is_room() -> None:
    backlog = Backlog(MOST_OF_ONE, MOST_OF_ALL)
    line = Line(lambda: None)
    assert backlog.take(line, 1000)
    asyncio.run(_take_and_give_back(backlog, line))
    assert line.waiting == 400


def test_a_client_with_nothing_to_read_waits_for_room_that_others_have_filled() -> None:
    backlog = Backlog(MOST_OF_ONE, MOST_OF_ONE)
    other, line = Line(lambda: None), Line(lambda: None)
    assert backlog.take(other, 800)

    async def scene() -> bool:
        waiting = asyncio.create_task(asyncio.to_thread(backlog.take_in_time, line, 400, 60.0))
        while not backlog._awaited and not waiting.done():
            await asyncio.sleep(0)
        backlog.give_back(other, 800)
        return await waiting

    assert asyncio.run(scene())


async def _take_and_give_back(backlog: Backlog, line: Line) -> None:
    waiting = asyncio.create_task(asyncio.to_thread(backlog.take_in_time, line, 400, 60.0))
    while not backlog._awaited:
        await asyncio.sleep(0)
    backlog.give_back(line, 1000)
    assert await waiting


@pytest.mark.parametrize("tell", [Backlog.end, Backlog.close])
def test_a_waiting_sender_is_released_when_the_connection_ends(tell) -> None:
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
