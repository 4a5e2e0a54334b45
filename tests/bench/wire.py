"""WebSocket frames by hand: the cheapest client there is, so that servers are what is measured."""

import os
from base64 import b64encode
from collections.abc import Iterator

TEXT = 0x1
CLOSE = 0x8
PING = 0x9
PONG = 0xA

_FIN = 0x80
_MASKED = 0x80


def upgrade_request(host: str, port: int) -> bytes:
    key = b64encode(os.urandom(16)).decode()
    return (
        f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def masked_frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """A frame as a client sends it."""
    length = len(payload)
    if length < 126:
        head = bytes([_FIN | opcode, _MASKED | length])
    elif length < 1 << 16:
        head = bytes([_FIN | opcode, _MASKED | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([_FIN | opcode, _MASKED | 127]) + length.to_bytes(8, "big")
    mask = os.urandom(4)
    return head + mask + _xor(payload, mask)


def _xor(payload: bytes, mask: bytes) -> bytes:
    length = len(payload)
    key = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(length, "big")


class FrameReader:
    """Frames of a server, which are not masked, out of what arrives in pieces."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(opcode, payload) of each frame that is whole."""
        buffer = self._buffer + data if self._buffer else data
        start, end = 0, len(buffer)
        while end - start >= 2:
            head, length = 2, buffer[start + 1]
            if length >= 126:
                head = 4 if length == 126 else 10
                if end - start < head:
                    break
                length = int.from_bytes(buffer[start + 2 : start + head], "big")
            if end - start < head + length:
                break
            yield buffer[start] & 0x0F, buffer[start + head : start + head + length]
            start += head + length
        self._buffer = buffer[start:]
