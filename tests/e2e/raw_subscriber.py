"""A subscriber written from the documents alone: no codec, packet, condition or token of ours.

It stands against the relay's own reading of BTP-NIPs, ILPv4 and the author scheme.
"""

import hmac
import itertools
import json
import struct
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.client import HTTPConnection
from typing import Any

TYPES = {"EVENT": 1, "REQ": 2, "CLOSE": 3, "NOTICE": 4, "EOSE": 5, "OK": 6, "AUTH": 7, "COUNT": 8,
         "CLOSED": 9}  # fmt: skip

# secp256k1

_P = 2**256 - 2**32 - 977
_G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
_Point = tuple[int, int] | None


def _add(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    if one[0] == other[0] and one[1] != other[1]:
        return None
    if one == other:
        slope = 3 * one[0] * one[0] * pow(2 * one[1], -1, _P) % _P
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P) % _P
    x = (slope * slope - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _times(point: _Point, number: int) -> _Point:
    found = None
    while number:
        if number & 1:
            found = _add(found, point)
        point, number = _add(point, point), number >> 1
    return found


def _x(point: _Point) -> bytes:
    assert point is not None
    return point[0].to_bytes(32)


def key_of(secret: bytes) -> str:
    return _x(_times(_G, int.from_bytes(secret))).hex()


def shared_x(secret: bytes, key: str) -> bytes:
    x = int(key, 16)
    y = pow(x**3 + 7, (_P + 1) // 4, _P)
    return _x(_times((x, y if y % 2 == 0 else _P - y), int.from_bytes(secret)))


# ILPv4


def _var(octets: bytes) -> bytes:
    if len(octets) < 128:
        return bytes([len(octets)]) + octets
    length = len(octets).to_bytes((len(octets).bit_length() + 7) // 8)
    return bytes([0x80 | len(length)]) + length + octets


def _take(octets: bytes) -> tuple[bytes, bytes]:
    size, rest = octets[0], octets[1:]
    if size & 0x80:
        size, rest = int.from_bytes(rest[: size & 0x7F]), rest[size & 0x7F :]
    return rest[:size], rest[size:]


def prepare(amount: int, condition: bytes, to: str, data: bytes, seconds: float = 30) -> bytes:
    expires = datetime.now(UTC) + timedelta(seconds=seconds)
    when = expires.strftime("%Y%m%d%H%M%S") + f"{expires.microsecond // 1000:03d}"
    body = struct.pack(">Q", amount) + when.encode() + condition + _var(to.encode()) + _var(data)
    return b"\x0c" + _var(body)


@dataclass
class Reply:
    """A Fulfill has no code."""

    code: str
    text: str
    data: bytes
    fulfillment: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def error(self) -> tuple[str, str]:
        return self.code, self.json["error"]

    def kinds(self) -> list[str]:
        names = {number: name for name, number in TYPES.items()}
        return [names[each["messageType"]] for each in self.json["messages"]]

    def ids(self) -> list[str]:
        return [each["nostr"]["event"]["id"] for each in self.json["messages"]
                if each["messageType"] == 1]  # fmt: skip


def _reply(octets: bytes) -> Reply:
    body, left = _take(octets[1:])
    assert left == b""
    if octets[0] == 13:
        data, left = _take(body[32:])
        assert left == b""
        return Reply("", "", data, body[:32])
    assert octets[0] == 14
    _, rest = _take(body[3:])
    text, rest = _take(rest)
    data, left = _take(rest)
    assert left == b""
    return Reply(body[:3].decode(), text.decode(), data)


# BTP-NIPs


def envelope(name: str, body: Any) -> bytes:
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    return struct.pack(">BBH", 1, TYPES[name], len(octets)) + octets


@dataclass
class RawSubscriber:
    port: int
    token: str = field(repr=False)
    relay: str  # its public key
    address: str
    secret: bytes = field(repr=False)
    _ticks: Any = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.key = key_of(self.secret)
        shared = shared_x(self.secret, self.relay)
        self._hmac_key = hmac.digest(shared, b"farthing/ilp/v1", "sha256")

    def fulfillment(self, data: bytes) -> bytes:
        return hmac.digest(self._hmac_key, data, "sha256")

    def delivery_fulfillment(self, data: bytes) -> bytes:
        """Of a packet that a relay with our key would send to this relay's subscriber."""
        shared = shared_x(self.secret, self.relay)
        key = hmac.digest(shared, b"farthing/delivery/v1", "sha256")
        return hmac.digest(key, data, "sha256")

    def post(
        self, data: bytes, amount: int = 0, *, preimage: bytes | None = None, token: str = "",
        to: str = "", seconds: float = 30,
    ) -> Reply:  # fmt: skip
        preimage = self.fulfillment(data) if preimage is None else preimage
        condition = sha256(preimage).digest()
        packet = prepare(amount, condition, to or self.address, data, seconds)
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/ilp", packet, {
            "Content-Type": "application/octet-stream",
            "Authorization": f"Bearer {token or self.token}",
        })  # fmt: skip
        answer = connection.getresponse()
        octets = answer.read()
        connection.close()
        assert answer.status == 200, (answer.status, octets)
        reply = _reply(octets)
        if not reply.code:
            assert sha256(reply.fulfillment).digest() == condition
            assert len(reply.data) <= 32767
        return reply

    def body(
        self, name: str, nostr: dict[str, Any], payment: dict[str, Any], metadata: dict[str, Any]
    ) -> dict[str, Any]:
        # The timestamp may be equal in two messages, and then they must differ in something else.
        given = {"timestamp": int(time.time()), "sender": self.key, "n": next(self._ticks)}
        return {
            "payment": {"amount": "0", "currency": "USD", "purpose": "subscription", **payment},
            "nostr": {"type": name, **nostr},
            "metadata": {k: v for k, v in {**given, **metadata}.items() if v is not None},
        }

    def req_data(
        self, id: str, filters: Any = (), *, model: str = "", payment: Any = None,
        token: str | None = None, **metadata: Any,
    ) -> bytes:  # fmt: skip
        nostr = {"subscriptionId": id, "filters": list(filters)}
        nostr |= {"resumptionToken": token} if token is not None else {}
        paid = {**({"model": model} if model else {}), **(payment or {})}
        return envelope("REQ", self.body("REQ", nostr, paid, metadata))

    def req(self, id: str, filters: Any = (), amount: int = 0, **given: Any) -> Reply:
        return self.post(self.req_data(id, filters, **given), amount)

    def close(self, id: str, amount: int = 0, **metadata: Any) -> Reply:
        body = self.body("CLOSE", {"subscriptionId": id}, {}, metadata)
        return self.post(envelope("CLOSE", body), amount)

    def count(self, filters: Any, amount: int = 0) -> Reply:
        nostr = {"subscriptionId": "c", "filters": filters}
        return self.post(envelope("COUNT", self.body("COUNT", nostr, {}, {})), amount)


def token_fields(token: str, relay_secret: bytes) -> dict[str, Any]:
    """What a resumption token says, if its seal is the relay's."""
    octets = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert urlsafe_b64encode(octets).rstrip(b"=").decode() == token
    key = hmac.digest(relay_secret, b"farthing/subscription/v1", "sha256")
    assert octets[0] == 1
    assert hmac.digest(key, octets[:-32], "sha256") == octets[-32:]
    fields: dict[str, Any] = json.loads(octets[1:-32])
    return fields
