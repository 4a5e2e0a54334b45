"""Frames as no client library sends them, on plain sockets: each ends as RFC 6455 says, nothing is
logged, and the next client is served."""

import json
import struct
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.raw_sockets import BINARY, CLOSE, PING, TEXT, Closed, WebSocket
from tests.e2e.relay_process import RelayProcess

Send = Callable[[WebSocket], object]


@pytest.fixture(autouse=True)
def _others_are_served(relay: RelayProcess) -> Iterator[None]:
    yield
    with WebSocket(relay.port) as client:
        assert client.answer('["COUNT","a",{"kinds":[1]}]', "COUNT")[:2] == ["COUNT", "a"]


@pytest.mark.parametrize(
    ("name", "send", "code"),
    [
        ("reserved bit", lambda line: line.frame(b"[]", bits=0x40), 1002),
        ("unknown kind", lambda line: line.frame(b"x", 3), 1002),
        ("unknown control", lambda line: line.frame(b"x", 11), 1002),
        ("continues nothing", lambda line: line.frame(b"x", 0), 1002),
        ("long ping", lambda line: line.frame(b"x" * 126, PING), 1002),
        ("ping in parts", lambda line: line.frame(b"x", PING, last=False), 1002),
        ("close of one byte", lambda line: line.frame(b"x", CLOSE), 1002),
        ("reserved code", lambda line: line.frame(struct.pack(">H", 1005), CLOSE), 1002),
        ("length of 2^63", lambda line: line.socket.sendall(b"\x81\xff\x80" + bytes(11)), 1009),
        ("length of 2^62", lambda line: line.socket.sendall(b"\x81\xff\x40" + bytes(11)), 1009),
        ("no UTF-8", lambda line: line.frame(b'["\xff"]'), 1007),
        ("a surrogate's bytes", lambda line: line.frame(b'["\xed\xa0\x80"]'), 1007),
        ("binary", lambda line: line.frame(b"\0\1\2", BINARY), 1003),
        ("goodbye", lambda line: line.frame(struct.pack(">H", 4999) + b"bye", CLOSE), 1000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_frame_that_ends_the_connection(
    relay: RelayProcess, name: str, send: Send, code: int
) -> None:
    with WebSocket(relay.port) as line:
        send(line)
        assert line.receive() == Closed(code)


def test_a_message_in_many_frames_with_pings_between(relay: RelayProcess) -> None:
    octets = json.dumps(["REQ", "ü", {"limit": 0}], ensure_ascii=False).encode()
    with WebSocket(relay.port) as line:
        line.frame(octets[:1], TEXT, last=False)
        for number in range(1, len(octets)):
            line.frame(b"", PING)
            line.frame(octets[number : number + 1], 0, last=number + 1 == len(octets))
        assert line.until("EOSE")[-1] == ["EOSE", "ü"]


def test_garbage_above_the_rate_is_answered_like_any_other(
    start_relay: Callable[..., RelayProcess],
) -> None:
    relay = start_relay(price_per_byte=0, requests_per_second=1, request_burst=20)
    with WebSocket(relay.port) as line:
        for number in range(35):
            line.text(f"garbage {number}")
        for _ in range(35):
            assert line.until("NOTICE")[-1] == ["NOTICE", "invalid: expected JSON"]
