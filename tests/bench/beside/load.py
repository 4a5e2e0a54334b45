"""The generator of requests, single publishes and subscriptions, a process of its own.

    python -m tests.bench.beside.load < job

The job is a line of JSON, of which `run` shows the kinds. The process writes "ready", waits for an
empty line, and ends with a line of JSON. Frames are masked before that, sockets are raw, and of an
answer only the first octets of each frame are looked at: a server should not wait for Python.
"""

import gc
import json
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.bench.wire import CLOSE, PING, PONG, TEXT, FrameReader, masked_frame, upgrade_request

_PATIENCE = 60  # seconds without anything to read
_QUIET = 5.0  # seconds after which deliveries that are missing are taken for lost
_HOST = "127.0.0.1"
_AT_ONCE = 50  # subscriptions that are opened before the first of them is answered
_ID = b'"id":"'
_V = ord("V")


class Failed(Exception):
    """The server refused something, or did not answer as it should."""


@dataclass
class Tally:
    operations: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    lost: int = 0
    latencies: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        self.latencies.sort()
        cuts = {"p50": self._percentile(0.5), "p99": self._percentile(0.99)}
        return {**asdict(self), "latencies": len(self.latencies), **cuts}

    def _percentile(self, share: float) -> float:
        """Milliseconds."""
        number = len(self.latencies)
        return self.latencies[min(number - 1, int(share * number))] * 1000 if number else 0.0


def split(buffer: bytes) -> tuple[int, list[tuple[int, bytes]], bytes]:
    """How many events there are, the other frames (opcode, payload), and what is not whole yet.

    Of what a relay says only `["EVENT"` has a V as its fourth octet.
    """
    events, others, at, size = 0, [], 0, len(buffer)
    while size - at >= 2:
        length, body = buffer[at + 1], at + 2
        if length == 126:
            body = at + 4
            if size < body:
                break
            length = buffer[at + 2] << 8 | buffer[at + 3]
        elif length == 127:
            body = at + 10
            if size < body:
                break
            length = int.from_bytes(buffer[at + 2 : body], "big")
        end = body + length
        if end > size:
            break
        if length > 3 and buffer[body + 3] == _V:
            events += 1
        else:
            others.append((buffer[at] & 0x0F, buffer[body:end]))
        at = end
    return events, others, buffer[at:]


class Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((_HOST, port), _PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A time limit of Python's own would cost a call for each read.
        self.socket.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            limit = struct.pack("ll", _PATIENCE, 0)
            self.socket.setsockopt(socket.SOL_SOCKET, option, limit)
        self.socket.sendall(upgrade_request(_HOST, port))
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._read()
        head, _, self._rest = head.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise Failed(f"no WebSocket: {head[:200]!r}")
        self._frames = FrameReader()

    def _read(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise Failed("the server hung up")
        return data

    def counted(self) -> tuple[int, list[bytes]]:
        """The number of events, and all other messages, of what has arrived."""
        data = self._read()
        events, others, self._rest = split(self._rest + data if self._rest else data)
        return events, list(self._messages(others))

    def messages(self) -> Iterator[bytes]:
        """All messages of what has arrived."""
        data, self._rest = self._rest + self._read(), b""
        return self._messages(self._frames.feed(data))

    def _messages(self, frames: Any) -> Iterator[bytes]:
        for opcode, payload in frames:
            if opcode == TEXT:
                yield payload
            elif opcode == PING:
                self.socket.sendall(masked_frame(payload, PONG))
            elif opcode == CLOSE:
                raise Failed(f"the server closed: {payload!r}")


class Asking(Connection):
    """One REQ after the other; with each the one before it is closed."""

    def __init__(self, port: int, filters: Sequence[str], expected: int, tally: Tally) -> None:
        super().__init__(port)
        self._frames_ahead = iter([self._request(each, filters) for each in range(len(filters))])
        self._expected, self._tally = expected, tally
        self._number, self._events, self._sent = -1, 0, 0.0

    @staticmethod
    def _request(number: int, filters: Sequence[str]) -> bytes:
        request = masked_frame(f'["REQ","q{number}",{filters[number]}]'.encode())
        if not number:
            return request
        return masked_frame(f'["CLOSE","q{number - 1}"]'.encode()) + request

    def ask(self) -> bool:
        """Whether there was something left to ask."""
        frame = next(self._frames_ahead, None)
        if frame is None:
            return False
        self._number, self._events = self._number + 1, 0
        self._sent = time.perf_counter()
        self.socket.sendall(frame)
        return True

    def receive(self) -> bool:
        """Whether more is to come."""
        events, others = self.counted()
        self._events += events
        for message in others:
            if message.startswith(b'["EOSE"'):
                return self._answered()
            if message.startswith(b'["NOTICE"') or self._is_refusal(message):
                raise Failed(message[:300].decode(errors="replace"))
        return True

    def _answered(self) -> bool:
        self._tally.latencies.append(time.perf_counter() - self._sent)
        self._tally.operations += 1
        if self._events != self._expected:
            raise Failed(f"{self._events} events instead of {self._expected}")
        return self.ask()

    def _is_refusal(self, message: bytes) -> bool:
        """CLOSED is also how some relays answer a CLOSE."""
        return message.startswith(b'["CLOSED"') and f'"q{self._number}"'.encode() in message


def requests(job: dict[str, Any], port: int) -> Tally:
    """Clients that each ask their filters, one at a time."""
    tally = Tally()
    clients = [Asking(port, filters, job["expected"], tally) for filters in job["filters"]]
    by_socket = {client.socket.fileno(): client for client in clients}
    with select.epoll() as poll, measured(tally):
        for number, client in by_socket.items():
            poll.register(number, select.EPOLLIN)
            client.ask()
        left = len(clients)
        while left:
            for number in waited(poll):
                if not by_socket[number].receive():
                    left -= 1
    return tally


def publishes(job: dict[str, Any], port: int) -> Tally:
    """One client that publishes a message once the one before it is acknowledged."""
    tally, connection = Tally(), Connection(port)
    frames = [masked_frame(message.encode()) for message in job["messages"]]
    with measured(tally):
        for frame in frames:
            sent = time.perf_counter()
            connection.socket.sendall(frame)
            while not sum(acknowledged(message) for message in connection.counted()[1]):
                pass
            tally.latencies.append(time.perf_counter() - sent)
            tally.operations += 1
    return tally


def acknowledged(message: bytes) -> bool:
    if message.startswith(b'["OK"'):
        if json.loads(message)[2] is not True:
            raise Failed(message[:300].decode(errors="replace"))
        return True
    if message.startswith(b'["NOTICE"'):
        raise Failed(message[:300].decode(errors="replace"))
    return False


class Deliveries:
    """Subscriptions that are open, and the events that one publisher sends to them."""

    def __init__(self, job: dict[str, Any], port: int) -> None:
        self.tally = Tally()
        self._expected, self._window = job["expected"], job["window"]
        self._pause = 1 / job["per_second"] if job["per_second"] else 0.0
        self._frames = [masked_frame(message.encode()) for message in job["messages"]]
        self._ids = [id_in(message.encode()) for message in job["messages"]]
        self._sent: dict[bytes, float] = {}
        self._arrived: set[tuple[int, bytes]] = set()  # socket and id: once each is enough
        self._in_flight = 0
        self._acknowledged = 0
        self._poll = select.epoll()
        self._subscribers = self._subscribe(port, job["filters"])
        self._publisher = Connection(port)
        self._poll.register(self._publisher.socket.fileno(), select.EPOLLIN)

    def _subscribe(self, port: int, filters: Sequence[str]) -> dict[int, Connection]:
        opened: dict[int, Connection] = {}
        for start in range(0, len(filters), _AT_ONCE):
            batch = []
            for filter in filters[start : start + _AT_ONCE]:
                connection = Connection(port)
                connection.socket.sendall(masked_frame(f'["REQ","live",{filter}]'.encode()))
                opened[connection.socket.fileno()] = connection
                batch.append(connection)
            for connection in batch:
                while not any(each.startswith(b'["EOSE"') for each in connection.messages()):
                    pass
        for number in opened:
            self._poll.register(number, select.EPOLLIN)
        return opened

    def run(self) -> Tally:
        total = len(self._frames)
        with measured(self.tally):
            started = last = time.perf_counter()
            while self.tally.operations < self._expected or self._acknowledged < total:
                wait = self._publish(started)
                if self._receive(wait):
                    last = time.perf_counter()
                elif time.perf_counter() - last > _QUIET:
                    break
        if self._acknowledged < total:
            raise Failed(f"{total - self._acknowledged} of {total} events are not acknowledged")
        self.tally.lost = self._expected - self.tally.operations
        if self.tally.lost:
            self.tally.seconds -= time.perf_counter() - last
        return self.tally

    def _publish(self, started: float) -> float:
        """Send what is due; seconds until the next is."""
        batch = b""
        while len(self._sent) < len(self._frames) and self._in_flight < self._window:
            number, now = len(self._sent), time.perf_counter()
            due = started + number * self._pause
            if due > now:
                break
            self._sent[self._ids[number]] = now
            self._in_flight += 1
            batch += self._frames[number]
        if batch:
            self._publisher.socket.sendall(batch)
        if len(self._sent) == len(self._frames) or self._in_flight == self._window:
            return 1.0
        return max(0.0, started + len(self._sent) * self._pause - time.perf_counter())

    def _receive(self, seconds: float) -> bool:
        ready = self._poll.poll(seconds)
        for number, _ in ready:
            if number in self._subscribers:
                for message in self._subscribers[number].messages():
                    self._delivered(number, message)
            else:
                for message in self._publisher.messages():
                    if acknowledged(message):
                        self._acknowledged += 1
                        self._in_flight -= 1
        return bool(ready)

    def _delivered(self, number: int, message: bytes) -> None:
        if message.startswith(b'["EVENT"'):
            delivery = (number, id_in(message))
            sent = self._sent.get(delivery[1])
            # Not one that was stored before.
            if sent is not None and delivery not in self._arrived:
                self._arrived.add(delivery)
                self.tally.latencies.append(time.perf_counter() - sent)
                self.tally.operations += 1
        elif message.startswith((b'["CLOSED"', b'["NOTICE"')):
            raise Failed(message[:300].decode(errors="replace"))


def deliveries(job: dict[str, Any], port: int) -> Tally:
    return Deliveries(job, port).run()


def id_in(message: bytes) -> bytes:
    start = message.index(_ID) + len(_ID)
    return message[start : start + 64]


class measured:
    """The time and the CPU from when both sides are ready."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __enter__(self) -> None:
        gc.collect()
        gc.disable()
        print("ready", flush=True)
        sys.stdin.readline()
        self._started, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self._tally.seconds = time.perf_counter() - self._started
        self._tally.cpu_seconds = time.process_time() - self._cpu


def waited(poll: select.epoll) -> list[int]:
    ready = poll.poll(_PATIENCE)
    if not ready:
        raise Failed(f"no answer in {_PATIENCE} seconds")
    return [number for number, _ in ready]


KINDS: dict[str, Callable[[dict[str, Any], int], Tally]] = {
    "requests": requests,
    "publishes": publishes,
    "deliveries": deliveries,
}


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    job = json.loads(sys.stdin.readline())
    try:
        tally = KINDS[job["kind"]](job, job["port"])
    except (Failed, OSError) as error:
        print(json.dumps({"failed": str(error)}), flush=True)
    else:
        print(json.dumps(tally.as_dict()), flush=True)


if __name__ == "__main__":
    main()
