"""A client of our own for black-box tests: WebSocket frames, HTTP requests and ILP packets written
and read byte by byte on plain sockets. It shares no code with the server."""

import base64
import hashlib
import hmac
import json
import os
import socket
import struct
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from coincurve import PrivateKey, PublicKey

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_WAIT = 20.0
_WIDE = 65536


@dataclass(frozen=True)
class Closed:
    """The close frame that the server has sent; 1006 where there was none."""

    code: int


class WebSocket:
    def __init__(self, port: int, path: str = "/") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_WAIT)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self._unread = b""
        while b"\r\n\r\n" not in self._unread:
            self._unread += self._more()
        self.head, self._unread = self._unread.split(b"\r\n\r\n", 1)
        assert self.head.startswith(b"HTTP/1.1 101 "), self.head

    def __enter__(self) -> "WebSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def frame(self, payload: bytes, kind: int = TEXT, *, last: bool = True, bits: int = 0) -> None:
        """One frame, whatever it holds."""
        size = len(payload)
        if size < 126:
            length = bytes([0x80 | size])
        elif size < _WIDE:
            length = bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            length = bytes([0x80 | 127]) + struct.pack(">Q", size)
        # A mask of zeros leaves the payload as it is.
        self.socket.sendall(bytes([0x80 * last | bits | kind]) + length + bytes(4) + payload)

    def text(self, text: str) -> None:
        self.frame(text.encode())

    def send(self, *parts: object) -> None:
        self.text(json.dumps(parts))

    def receive(self) -> Any:
        """The next message: decoded JSON, or how the connection ended."""
        try:
            while True:
                first, second = self._take(2)
                size = second & 0x7F
                if size == 126:
                    (size,) = struct.unpack(">H", self._take(2))
                elif size == 127:
                    (size,) = struct.unpack(">Q", self._take(8))
                payload, kind = self._take(size), first & 0x0F
                if kind == CLOSE:
                    return Closed(struct.unpack(">H", payload[:2])[0] if payload else 1005)
                if kind == TEXT:
                    return json.loads(payload)
        except ConnectionError:
            return Closed(1006)

    def until(self, *verbs: str) -> list[Any]:
        """Messages up to the first of these verbs, or to the end; the challenge is left out."""
        got = []
        while True:
            message = self.receive()
            if isinstance(message, Closed) or message[0] != "AUTH":
                got.append(message)
            if isinstance(message, Closed) or message[0] in verbs:
                return got

    def answer(self, text: str, *verbs: str) -> Any:
        """The first of these verbs that comes back for a text."""
        self.text(text)
        return self.until(*verbs)[-1]

    def store(self, event: dict[str, Any]) -> None:
        self.send("EVENT", event)
        assert self.until("OK")[-1] == ["OK", event["id"], True, ""]

    def _take(self, count: int) -> bytes:
        while len(self._unread) < count:
            self._unread += self._more()
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def _more(self) -> bytes:
        octets = self.socket.recv(_WIDE)
        if not octets:
            raise ConnectionError
        return octets


class Writer:
    """A Nostr key, and what it signs and pays."""

    def __init__(self) -> None:
        self._key = PrivateKey()
        self.pubkey = self._key.public_key_xonly.format().hex()

    def event(self, content: str = "", kind: int = 1, **fields: Any) -> dict[str, Any]:
        created_at = fields.get("created_at", int(time.time()))
        tags = fields.get("tags", [])
        signed = [0, self.pubkey, created_at, kind, tags, content]
        text = json.dumps(signed, separators=(",", ":"), ensure_ascii=False)
        event_id = hashlib.sha256(text.encode()).digest()
        return {
            "id": event_id.hex(),
            "pubkey": self.pubkey,
            "created_at": created_at,
            "kind": kind,
            "tags": tags,
            "content": content,
            "sig": self._key.sign_schnorr(event_id).hex(),
        }

    def fulfillment(self, relay: str, data: bytes) -> bytes:
        """Of the scheme "author"."""
        point = PublicKey(b"\x02" + bytes.fromhex(relay)).multiply(self._key.secret)
        key = hmac.digest(point.format()[1:], b"farthing/ilp/v1", "sha256")
        return hmac.digest(key, data, "sha256")


def toon(event: dict[str, Any]) -> bytes:
    """An event without tags as TOON, by the format's own rules for texts that need quotes."""
    assert not event["tags"]
    lines = [
        f"id: {_quoted(event['id'])}",
        f"pubkey: {_quoted(event['pubkey'])}",
        f"created_at: {event['created_at']}",
        f"kind: {event['kind']}",
        "tags[0]:",
        f"content: {_quoted(event['content'])}",
        f"sig: {_quoted(event['sig'])}",
    ]
    return "\n".join(lines).encode()


def _quoted(text: str) -> str:
    try:
        float(text or "0")
    except ValueError:
        return text
    return f'"{text}"'


def prepare(
    amount: int, condition: bytes, destination: str, data: bytes, *,
    seconds: float = 20, expiry: bytes = b"",
) -> bytes:  # fmt: skip
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    digits = moment.strftime("%Y%m%d%H%M%S%f")[:17].encode()
    body = amount.to_bytes(8) + (expiry or digits) + condition
    return b"\x0c" + octets(body + octets(destination.encode()) + octets(data))


def octets(value: bytes) -> bytes:
    """OER's variable octet string."""
    if len(value) < 0x80:
        return bytes([len(value)]) + value
    length = len(value).to_bytes((len(value).bit_length() + 7) // 8)
    return bytes([0x80 | len(length)]) + length + value


@dataclass(frozen=True)
class Reply:
    """A Fulfill, whose code is empty, or a Reject."""

    code: str
    data: bytes
    fulfillment: bytes = b""
    triggered_by: str = ""
    message: str = ""


def read_reply(packet: bytes) -> Reply:
    body, rest = _taken(packet[1:])
    assert not rest
    if packet[0] == 13:
        data, rest = _taken(body[32:])
        assert not rest
        return Reply("", data, fulfillment=body[:32])
    assert packet[0] == 14
    triggered_by, rest = _taken(body[3:])
    message, rest = _taken(rest)
    data, rest = _taken(rest)
    assert not rest
    return Reply(
        body[:3].decode(), data, triggered_by=triggered_by.decode(), message=message.decode()
    )


def _taken(value: bytes) -> tuple[bytes, bytes]:
    first = value[0]
    start = 1 + (first & 0x7F if first >= 0x80 else 0)
    size = first if first < 0x80 else int.from_bytes(value[1:start])
    assert octets(value[start : start + size]) == value[: start + size]  # canonical
    return value[start : start + size], value[start + size :]


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    headers: dict[str, str]
    body: bytes


def exchange(port: int, request: bytes) -> HttpAnswer:
    """Send bytes as they are, and read one answer. Status 0: the server has hung up without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=_WAIT) as line:
        got = b""
        try:
            line.sendall(request)
            while not _is_whole(got):
                more = line.recv(_WIDE)
                if not more:
                    break
                got += more
        except ConnectionError:
            pass
    if not got:
        return HttpAnswer(0, {}, b"")
    head, _, body = got.partition(b"\r\n\r\n")
    status, *rows = head.decode("latin-1").split("\r\n")
    pairs = (row.partition(": ") for row in rows)
    return HttpAnswer(
        int(status.split()[1]), {name.lower(): value for name, _, value in pairs}, body
    )


def _is_whole(got: bytes) -> bool:
    head, end, body = got.partition(b"\r\n\r\n")
    if not end:
        return False
    if head.startswith(b"HTTP/1.1 101"):
        return True
    for row in head.split(b"\r\n"):
        name, _, value = row.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return False


def post(port: int, path: str, body: bytes, **headers: str) -> HttpAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    rows = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n{rows}\r\n"
    return exchange(port, head.encode() + body)
