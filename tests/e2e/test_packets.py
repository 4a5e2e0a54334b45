"""The short way of packets: it reads what the general server would read, or leaves it to that."""

import asyncio
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.ilp.packet import Fulfill, decode_reply, encode
from farthing.settings import Settings
from infra.local.server.connection_limits import ConnectionLimits
from infra.local.server.packet_server import NotPlain, PacketServer, Request, read_request
from tests.e2e.authors import Author
from tests.e2e.client import WAIT_SECONDS, Background
from tests.e2e.paying import PER_BYTE, books, free_port, payment_for, token_of
from tests.e2e.relay_process import RelayProcess

HEAD = b"POST /ilp HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"
PLAIN = HEAD + b"abc"


def request_with(*lines: bytes, body: bytes = b"abc", line: bytes = b"POST /ilp HTTP/1.1") -> bytes:
    return b"\r\n".join([line, b"Host: x", *lines, b"", body])


class TestReading:
    def test_a_plain_packet_request_is_read(self) -> None:
        octets = request_with(b"Content-Length: 3", b"Authorization:  Bearer x ", b"X-Empty:")
        headers = {
            "host": "x", "content-length": "3", "authorization": "Bearer x", "x-empty": "",
        }  # fmt: skip
        assert read_request(octets) == Request(headers, b"abc", b"")
        assert read_request(octets + b"POST") == Request(headers, b"abc", b"POST")

    @pytest.mark.parametrize("cut", range(len(PLAIN)))
    def test_a_part_of_a_request_is_not_read_yet(self, cut: int) -> None:
        assert read_request(PLAIN[:cut]) is None

    @pytest.mark.parametrize(
        "octets",
        [
            request_with(b"Content-Length: 3", line=b"GET /ilp HTTP/1.1"),
            request_with(b"Content-Length: 3", line=b"POST /ilp HTTP/1.0"),
            request_with(b"Content-Length: 3", line=b"POST /ilp?x HTTP/1.1"),
            request_with(b"Content-Length: 3", line=b"POST /ilpx HTTP/1.1"),
            b"POST /ilp HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            b"POST /ilp HTTP/1.1\r\n\r\n",
            PLAIN.replace(b"\r\n", b"\n"),
            request_with(),
            request_with(b"Content-Length: 3", b"Content-Length: 3"),
            request_with(b"Content-Length: 3", b"content-length: 4"),
            request_with(b"Content-Length: +3"),
            request_with(b"Content-Length: 3, 3"),
            request_with(b"Content-Length: 0x3"),
            request_with(b"Content-Length:"),
            request_with(b"Content-Length: 99999"),
            request_with(b"Content-Length: 000003"),
            request_with(b"Content-Length: 3", b"Transfer-Encoding: chunked"),
            request_with(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n"),
            request_with(b"Content-Length: 3", b"Expect: 100-continue"),
            request_with(b"Content-Length: 3", b"Connection: close"),
            request_with(b"Content-Length: 3", b"Connection: keep-alive, Upgrade", b"Upgrade: h2c"),
            request_with(b"Content-Length: 3", b"Content-Encoding: gzip"),
            request_with(b"Content-Length: 3", b"X-A : b"),
            request_with(b"Content-Length: 3", b" folded"),
            request_with(b"Content-Length: 3", b"X-A: b", b"\tfolded"),
            request_with(b"Content-Length: 3", b"X-A: \xc3\xa9"),
            request_with(b"Content-Length: 3", b"X-A: a\0b"),
            request_with(b"Content-Length: 3", b"X-A: a\rb"),
            request_with(b"Content-Length: 3", b"X-A: a\nb"),
            request_with(b"Content-Length: 3", b"X_A: b"),
            request_with(b"Content-Length: 3", b": b"),
            request_with(b"Content-Length: 3", b"no colon"),
            request_with(b"Content-Length: 3", b"X-A: " + b"a" * 4096),
            b"POST /ilp HTTP/1.1\r\nX-A: " + b"a" * 4096,
        ],
    )
    def test_a_request_of_another_form_is_left_to_the_general_server(self, octets: bytes) -> None:
        with pytest.raises(NotPlain):
            read_request(octets)


_NAMES = st.sampled_from(
    ["Content-Length", "content-length", "Transfer-Encoding", "Connection", "Authorization",
     "Content-Type", "Request-Id", "Expect", "X-A", "Host", "Upgrade", "X A", "X\tA", ""]
)  # fmt: skip
_VALUES = st.sampled_from(
    ["3", "0", "5", "03", "3 ", "chunked", "close", "keep-alive", "Bearer x", "100-continue",
     "h2c", "a\tb", "", "identity"]
) | st.text("ab\r\n\t: ,3\x7f\x00é", max_size=4)  # fmt: skip
_HEADERS = st.lists(st.tuples(_NAMES, _VALUES), max_size=5)


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.sent = b""
        self.calls: list[str] = []
        self.protocol: Any = None

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("10.0.0.1", 40000) if name == "peername" else None

    def write(self, octets: bytes) -> None:
        self.sent += octets

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.calls.append(name)


class Read(NamedTuple):
    request: web.BaseRequest
    body: bytes


async def read_by_the_general_server(octets: bytes) -> Read:
    """The first request as its handler gets it."""
    first: asyncio.Future[Read] = asyncio.get_running_loop().create_future()

    async def handler(request: web.BaseRequest) -> web.Response:
        read = Read(request, await request.read())
        if not first.done():
            first.set_result(read)
        return web.Response()

    connection = web.Server(handler)()
    connection.connection_made(Wire())  # type: ignore[arg-type]
    connection.data_received(octets)
    try:
        return await asyncio.wait_for(first, WAIT_SECONDS)
    finally:
        connection.connection_lost(None)


@settings(max_examples=400)
@given(
    length=st.sampled_from([[("Content-Length", "3")], []]),
    headers=_HEADERS,
    separator=st.sampled_from([": ", ":", ":  "]),
    body=st.sampled_from([b"abc", b"", b"abcPOST /ilp HTTP/1.1\r\n"]),
)
def test_what_is_taken_the_general_server_reads_in_the_same_way(
    background: Background,
    length: list[tuple[str, str]],
    headers: list[tuple[str, str]],
    separator: str,
    body: bytes,
) -> None:
    fields = [f"{name}{separator}{value}" for name, value in [*headers, *length]]
    lines = ["POST /ilp HTTP/1.1", "Host: x", *fields]
    octets = "\r\n".join([*lines, "", ""]).encode() + body
    try:
        request = read_request(octets)
    except NotPlain:
        return
    if request is None:
        return
    # Without what comes behind: garbage there makes it refuse both.
    own = octets.removesuffix(request.rest)
    read = background.run(read_by_the_general_server(own))
    assert (read.request.method, read.request.path) == ("POST", "/ilp")
    assert read.request.keep_alive
    assert {name.lower(): value for name, value in read.request.headers.items()} == request.headers
    assert read.body == request.body
    assert request.body + request.rest == body


class General:
    """The general server, as far as a connection is given to it."""

    def __init__(self) -> None:
        self.got = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, octets: bytes) -> None:
        self.got += octets


class Handlers:
    """A runner whose handlers end when the test says so; each answers with the body it got."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.begun.append((work, done))

    def end(self) -> None:
        work, done = self.begun.pop(0)
        done(work())


def echo(event: dict[str, Any], _context: object) -> dict[str, Any]:
    return {"statusCode": 200, "headers": {}, "body": event["body"],
            "isBase64Encoded": event["isBase64Encoded"]}  # fmt: skip


class World:
    """A connection without a network."""

    def __init__(self, request_seconds: float = 0, **limits: int) -> None:
        self.wire, self.general, self.handlers = Wire(), General(), Handlers()
        self.limits = ConnectionLimits(Settings(**limits))
        self.server = PacketServer(
            echo, self.handlers, self.limits, request_seconds, lambda: self.general  # type: ignore[arg-type, return-value]
        )  # fmt: skip
        self.connection = self.server()
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]


def in_the_loop(background: Background, test: Callable[[World], None], **limits: int) -> None:
    async def run() -> None:
        test(World(**limits))

    background.run(run())


class TestAConnection:
    def test_requests_in_any_pieces_are_answered_one_by_one(self, background: Background) -> None:
        second = HEAD + b"def"

        def test(world: World) -> None:
            for octet in PLAIN + second:
                world.connection.data_received(bytes([octet]))
            assert len(world.handlers.begun) == 1
            world.handlers.end()
            assert world.wire.sent.endswith(b"\r\n\r\nabc")
            world.handlers.end()
            assert world.wire.sent.endswith(b"\r\n\r\ndef")
            assert not world.handlers.begun
            assert not world.general.got

        in_the_loop(background, test)

    def test_something_else_goes_to_the_general_server_with_every_octet(
        self, background: Background
    ) -> None:
        other = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

        def test(world: World) -> None:
            world.connection.data_received(PLAIN + other[:10])
            assert not world.general.got  # its turn has not come
            world.connection.data_received(other[10:])
            world.handlers.end()
            assert world.wire.sent.endswith(b"abc")
            assert world.general.got == other
            assert world.wire.protocol is world.general
            assert world.general.transport is world.wire
            assert not world.server.open
            assert world.connection.gone.done()

        in_the_loop(background, test)

    def test_a_failed_handler_is_our_fault(self, background: Background) -> None:
        def test(world: World) -> None:
            world.connection.data_received(PLAIN)
            world.handlers.begun[0][1](None)
            assert world.wire.sent.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")

        in_the_loop(background, test)

    def test_what_comes_ahead_is_bounded(self, background: Background) -> None:
        def test(world: World) -> None:
            world.connection.data_received(PLAIN)
            for _ in range(3):
                world.connection.data_received(PLAIN * 1000)
            assert world.wire.calls == ["pause_reading"]
            for _ in range(3001):
                world.handlers.end()
            assert world.wire.calls == ["pause_reading", "resume_reading"]
            assert not world.handlers.begun

        in_the_loop(background, test)

    def test_no_more_is_read_from_a_client_that_reads_no_answers(
        self, background: Background
    ) -> None:
        def test(world: World) -> None:
            world.connection.data_received(PLAIN)
            world.connection.pause_writing()
            world.handlers.end()
            world.connection.data_received(PLAIN * 3000)
            assert not world.handlers.begun
            assert world.wire.calls == ["pause_reading"]
            world.connection.resume_writing()
            assert len(world.handlers.begun) == 1

        in_the_loop(background, test)

    @pytest.mark.parametrize(
        ("received", "reads", "end", "sent"),
        [
            (b"", True, "close", b""),
            (PLAIN[:20], True, "close", b""),
            (PLAIN[:-1], True, "close", b"HTTP/1.1 408 "),
            (PLAIN, False, "abort", b""),  # to close would wait until all is read
        ],
        ids=["nothing", "half a head", "half a body", "reads nothing"],
    )
    def test_nobody_is_waited_for_without_end(
        self, background: Background, received: bytes, reads: bool, end: str, sent: bytes
    ) -> None:
        async def run() -> None:
            world = World(request_seconds=0.01)
            if not reads:
                world.connection.pause_writing()
            world.connection.data_received(received)
            async with asyncio.timeout(WAIT_SECONDS):
                while not world.wire.is_closing():
                    await asyncio.sleep(0.001)
            assert world.wire.calls == [end]
            assert world.wire.sent.startswith(sent) and bool(sent) is bool(world.wire.sent)

        background.run(run())

    def test_a_handler_may_take_its_time(self, background: Background) -> None:
        async def run() -> None:
            world = World(request_seconds=1e-9)
            world.connection.data_received(PLAIN)
            world.connection._look_at_the_clock()
            assert not world.wire.is_closing()
            world.handlers.end()
            assert world.wire.sent.endswith(b"abc")

        background.run(run())

    def test_stopping_answers_what_was_asked_and_takes_nothing_more(
        self, background: Background
    ) -> None:
        async def run() -> None:
            world = World()
            world.connection.data_received(PLAIN + PLAIN)
            stopping = asyncio.ensure_future(world.server.stop(WAIT_SECONDS))
            await asyncio.sleep(0)
            assert not world.wire.is_closing()
            world.handlers.end()
            assert world.wire.sent.count(b"HTTP/1.1 200 ") == 1
            assert world.wire.calls == ["close"]
            assert not world.handlers.begun
            world.connection.connection_lost(None)
            await stopping

        background.run(run())

    def test_an_answer_after_the_client_has_left_is_dropped(self, background: Background) -> None:
        def test(world: World) -> None:
            world.connection.data_received(PLAIN)
            world.wire.calls.append("close")
            world.connection.connection_lost(None)
            world.handlers.end()
            assert not world.wire.sent
            assert not world.server.open

        in_the_loop(background, test)

    def test_a_connection_above_the_limit_gets_503(self, background: Background) -> None:
        def test(world: World) -> None:
            first = world.wire
            for _ in range(2):
                world.wire = Wire()
                late = world.server()
                late.connection_made(world.wire)  # type: ignore[arg-type]
                assert world.wire.sent.startswith(b"HTTP/1.1 503 ")
                late.connection_lost(None)
            assert not first.sent
            world.connection.connection_lost(None)
            world.wire = Wire()
            world.server().connection_made(world.wire)  # type: ignore[arg-type]
            assert not world.wire.sent

        in_the_loop(background, test, max_connections=1)


# The server itself


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("packets") / "data"
    relay = RelayProcess(data, port=free_port(), price_per_byte=PER_BYTE).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


@pytest.fixture
def line(relay: RelayProcess) -> Iterator[socket.socket]:
    with connection_to(relay) as line:
        yield line


def connection_to(relay: RelayProcess) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", relay.port))
    line.settimeout(WAIT_SECONDS)
    return line


def paid_post(relay: RelayProcess, *more: bytes) -> bytes:
    author = Author()
    packet = encode(payment_for(relay, author, author.event()).prepare)
    return request_with(
        b"Content-Type: application/octet-stream",
        f"Authorization: Bearer {token_of(relay)}".encode(),
        f"Content-Length: {len(packet)}".encode(),
        *more,
        body=packet,
    )


def answer_on(line: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The next response on a connection."""
    octets = b""
    while b"\r\n\r\n" not in octets:
        octets += line.recv(1)
    status, *lines = octets.decode().strip().split("\r\n")
    headers = dict(each.lower().split(": ", 1) for each in lines)
    body = b""
    while len(body) < int(headers["content-length"]):
        body += line.recv(int(headers["content-length"]) - len(body))
    return int(status.split()[1]), headers, body


def is_fulfilled(answer: tuple[int, dict[str, str], bytes]) -> bool:
    return answer[0] == 200 and isinstance(decode_reply(answer[2]), Fulfill)


@pytest.mark.parametrize("more", [[], [b"Connection: close"]], ids=["short way", "general server"])
def test_both_ways_answer_alike(relay: RelayProcess, line: socket.socket, more: list[bytes]):
    line.sendall(paid_post(relay, *more))
    status, headers, body = answer_on(line)
    assert is_fulfilled((status, headers, body))
    assert headers["content-type"] == "application/octet-stream"
    assert headers["access-control-allow-origin"] == "*"
    assert headers["date"].endswith(" gmt")


def test_many_packets_on_one_connection_are_all_answered(relay: RelayProcess, line: socket.socket):
    line.sendall(b"".join(paid_post(relay) for _ in range(5)))
    assert all(is_fulfilled(answer_on(line)) for _ in range(5))


def test_one_connection_serves_packets_pages_and_a_websocket(
    relay: RelayProcess, line: socket.socket
):
    """One connection, by a proxy say: packets, a page, a packet, and at last a WebSocket."""
    line.sendall(paid_post(relay))
    assert is_fulfilled(answer_on(line))
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer_on(line)[2] == b'{"status":"ok"}'
    line.sendall(paid_post(relay))
    assert is_fulfilled(answer_on(line))
    line.sendall(
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert line.recv(12) == b"HTTP/1.1 101"


@pytest.mark.parametrize(
    ("octets", "status"),
    [
        (request_with(b"Content-Length: 3"), 400),
        (request_with(b"Content-Length: 3", b"Content-Type: application/octet-stream"), 401),
        (request_with(b"Content-Length: 3", b"Content-Length: 4"), 400),
        (request_with(b"Content-Length: 3", b"Transfer-Encoding: chunked"), 400),
        (request_with(b"Content-Length: 40000", b"Content-Type: application/octet-stream",
                      body=b"x" * 40000), 413),
        (request_with(b"X\0: y"), 400),
        (PLAIN.replace(b"1.1", b"9.9"), 400),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(
    relay: RelayProcess, line: socket.socket, octets: bytes, status: int
):
    before = books(relay)
    line.sendall(octets)
    assert answer_on(line)[0] == status
    assert books(relay) == before


def test_garbage_of_all_sorts_leaves_nothing_behind(relay: RelayProcess):
    """Requests with octets changed, left out and put in: nothing is stored, nothing is logged."""
    randomness = random.Random(1)
    good, before = paid_post(relay, b"X-Padding: " + b"x" * 50), books(relay)
    head = good.index(b"\r\n\r\n") + 4
    for _ in range(300):
        octets = bytearray(good)
        for _ in range(randomness.randint(1, 3)):
            at = randomness.randrange(head)
            match randomness.randrange(3):
                case 0:
                    octets[at] = randomness.randrange(256)
                case 1:
                    del octets[at : at + randomness.randint(1, 20)]
                case _:
                    octets[at:at] = randomness.choice([b"\r\n", b"\0", b": ", b"\xff", b"9"])
        # The event is never stored: its packet lacks an octet.
        with connection_to(relay) as line:
            line.sendall(octets[:-1])
            line.shutdown(socket.SHUT_WR)
            while line.recv(65536):
                pass
    assert books(relay) == before
    with connection_to(relay) as line:
        line.sendall(good)
        assert is_fulfilled(answer_on(line))


def test_a_token_behind_a_misspelt_name_is_not_logged(start_relay):
    relay = start_relay(port=free_port())
    with connection_to(relay) as line:
        line.sendall(request_with(b"Author\0ization: Bearer secret-0123456789"))
        assert answer_on(line)[0] == 400
    assert "secret" not in relay.log
    assert "Traceback" not in relay.log


def test_a_slow_packet_behind_a_quick_one_is_not_waited_for(start_relay):
    relay = start_relay(port=free_port(), price_per_byte=PER_BYTE, request_seconds=1)
    post = paid_post(relay)
    with connection_to(relay) as line:
        line.sendall(post)
        assert is_fulfilled(answer_on(line))
        line.sendall(post[:-1])
        assert answer_on(line)[0] == 408
        assert line.recv(1) == b""


def test_it_stops_when_what_has_come_is_answered(start_relay):
    relay = start_relay(port=free_port(), price_per_byte=PER_BYTE)
    with connection_to(relay) as idle, connection_to(relay) as busy:
        idle.sendall(paid_post(relay))
        assert is_fulfilled(answer_on(idle))
        busy.sendall(paid_post(relay))
        assert is_fulfilled(answer_on(busy))
        began = time.monotonic()
        busy.sendall(paid_post(relay))
        relay.send_signal(signal.SIGTERM)
        rest = busy.recv(65536)
        assert rest == b"" or rest.startswith(b"HTTP/1.1 200 ")
        assert idle.recv(1) == b""
        assert relay.wait() == 0
        assert time.monotonic() - began < WAIT_SECONDS
