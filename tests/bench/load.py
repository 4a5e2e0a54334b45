"""The load generator, a process of its own: many clients, each with a window of requests in flight.

    python -m tests.bench.load ws|http HOST PORT CLIENTS WINDOW SECONDS [TOKEN] < requests

Requests come as lines of base64, their number first: messages for a WebSocket, packets for
`POST /ilp`. The token is a peer's, or for WebSockets the secret key that clients log in with. It
writes "ready", waits for an empty line, and ends with a line of JSON. A WebSocket client sends its
window over one connection; an HTTP client has one for each request in flight.
"""

import asyncio
import json
import sys
import time
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import orjson
import uvloop

from farthing.nostr.events import sign_event
from tests.bench.wire import CLOSE, PING, PONG, TEXT, FrameReader, masked_frame, upgrade_request

_FULFILL = 13  # the type of an ILP packet, its first octet
_END_OF_HEAD = b"\r\n\r\n"
_CONNECT_SECONDS = 10
_ACK = b'{"type":"ack"'
_AETHER_ANSWERS = (_ACK, b'{"type":"error"')


@dataclass
class Tally:
    stored: int = 0
    refused: int = 0
    reason: str = ""  # of the first refusal
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def count(self, good: bool, reply: bytes) -> None:
        if good:
            self.stored += 1
        else:
            self.refused += 1
            self.reason = self.reason or reply[:300].decode(errors="replace")


class Sender(asyncio.Protocol):
    """Sends requests, so many ahead of the replies, until there are none left or time is up."""

    def __init__(self, requests: Iterator[bytes], window: int, tally: Tally) -> None:
        self._requests = requests
        self._window = window
        self._tally = tally
        self._in_flight = 0
        self._deadline = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the server hung up: {exc}"))

    def start(self, deadline: float) -> None:
        self._deadline = deadline
        self._send(self._window)

    def _send(self, number: int) -> None:
        """Send the next few in one go."""
        batch = []
        if time.monotonic() < self._deadline:
            batch = list(islice(self._requests, number))
        if batch:
            self._in_flight += len(batch)
            self._transport.write(b"".join(batch))
        elif not self._in_flight and not self.done.done():
            self.done.set_result(None)

    def _replied(self, number: int) -> None:
        self._in_flight -= number
        self._send(number)


class WebSocketSender(Sender):
    def __init__(self, requests: Iterator[bytes], window: int, tally: Tally) -> None:
        super().__init__(requests, window, tally)
        self._frames = FrameReader()
        self._head = b""
        loop = asyncio.get_running_loop()
        self.open: asyncio.Future[None] = loop.create_future()
        self._challenge: asyncio.Future[str] = loop.create_future()
        self._login: asyncio.Future[bytes] | None = None

    async def log_in(self, secret: bytes, url: str) -> None:
        """Prove the key (NIP-42), before anything is measured."""
        self._transport.write(masked_frame(b'["CLOSE","first"]'))
        tags = [["relay", url], ["challenge", await self._challenge]]
        proof = sign_event(secret, kind=22242, content="", created_at=int(time.time()), tags=tags)
        self._login = asyncio.get_running_loop().create_future()
        self._transport.write(masked_frame(b'["AUTH",%b]' % proof.to_json().encode()))
        answer = await self._login
        assert orjson.loads(answer)[2] is True, answer
        self._login = None

    def data_received(self, data: bytes) -> None:
        if not self.open.done():
            self._head += data
            head, found, data = self._head.partition(_END_OF_HEAD)
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self.open.set_result(None)
        replies = 0
        for opcode, payload in self._frames.feed(data):
            if opcode == TEXT and payload.startswith(b'["AUTH"'):
                self._challenge.set_result(orjson.loads(payload)[1])
            elif opcode == TEXT and self._login is not None:
                self._login.set_result(payload)
            elif opcode == TEXT and payload.startswith(b'["OK"'):
                self._tally.count(orjson.loads(payload)[2] is True, payload)
                replies += 1
            elif opcode == TEXT and payload.startswith(_AETHER_ANSWERS):
                self._tally.count(payload.startswith(_ACK), payload)
                replies += 1
            elif opcode == PING:
                self._transport.write(masked_frame(payload, PONG))
            elif opcode == CLOSE:
                raise ConnectionError(f"the server closed: {payload!r}")
        if replies:
            self._replied(replies)


class HttpSender(Sender):
    def __init__(self, requests: Iterator[bytes], window: int, tally: Tally) -> None:
        super().__init__(requests, window, tally)
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(_END_OF_HEAD)
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        good = head.startswith(b"HTTP/1.1 200") and rest[0] == _FULFILL
        self._tally.count(good, head.partition(b"\r\n")[0] + b" " + rest)
        self._buffer = rest[length:]
        self._replied(1)


def http_request(packet: bytes, host: str, port: int, token: str) -> bytes:
    head = (
        f"POST /ilp HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/octet-stream\r\nAccept: application/octet-stream\r\n"
        f"Content-Length: {len(packet)}\r\n\r\n"
    )
    return head.encode() + packet


async def web_sockets(
    host: str, port: int, requests: list[bytes], clients: int, window: int, tally: Tally,
    secret: str,
) -> list[Sender]:  # fmt: skip
    frames = [masked_frame(request) for request in requests]
    senders: list[Sender] = []
    for number in range(clients):
        mine = iter(frames[number::clients])
        transport, sender = await asyncio.get_running_loop().create_connection(
            lambda mine=mine: WebSocketSender(mine, window, tally), host, port
        )
        transport.write(upgrade_request(host, port))
        await asyncio.wait_for(sender.open, _CONNECT_SECONDS)
        if secret:
            login = sender.log_in(bytes.fromhex(secret), f"ws://{host}:{port}")
            await asyncio.wait_for(login, _CONNECT_SECONDS)
        senders.append(sender)
    return senders


async def http_connections(
    host: str, port: int, requests: list[bytes], clients: int, window: int, tally: Tally, token: str
) -> list[Sender]:
    posts = [http_request(request, host, port, token) for request in requests]
    senders: list[Sender] = []
    for number in range(clients):
        mine = iter(posts[number::clients])  # shared by the connections of one client
        for _ in range(window):
            _, sender = await asyncio.get_running_loop().create_connection(
                lambda mine=mine: HttpSender(mine, 1, tally), host, port
            )
            senders.append(sender)
    return senders


async def run(kind: str, host: str, port: int, clients: int, window: int, seconds: float,
              token: str = "") -> Tally:  # fmt: skip
    count = int(sys.stdin.readline())
    requests = [b64decode(sys.stdin.readline()) for _ in range(count)]
    tally = Tally()
    if kind == "ws":
        senders = await web_sockets(host, port, requests, clients, window, tally, token)
    else:
        senders = await http_connections(host, port, requests, clients, window, tally, token)
    print("ready", flush=True)
    sys.stdin.readline()
    started, cpu = time.monotonic(), time.process_time()
    for sender in senders:
        sender.start(started + seconds)
    await asyncio.gather(*(sender.done for sender in senders))
    tally.seconds, tally.cpu_seconds = time.monotonic() - started, time.process_time() - cpu
    return tally


def main() -> None:
    kind, host, port, clients, window, seconds, *token = sys.argv[1:]
    tally = uvloop.run(
        run(kind, host, int(port), int(clients), int(window), float(seconds), *token)
    )
    print(json.dumps(asdict(tally)))


if __name__ == "__main__":
    main()
