"""Canonical octet encoding rules: the integers and octet strings that ILP packets are made of.

Reading is strict: octets that are not canonical, truncated or followed by others are refused.
"""

from struct import Struct
from typing import Any, Final

U8_MAX: Final = 2**8 - 1
U64_MAX: Final = 2**64 - 1

# A length in more octets than this would be larger than the memory of any machine.
_LENGTH_OCTETS_MAX: Final = 8


class InvalidPacket(ValueError):
    """Bytes that are not an ILP packet, or a packet that cannot be encoded."""


class InvalidOer(InvalidPacket):
    """An integer or octet string that breaks the canonical encoding."""


class OctetReader:
    """Reads fields from the front of some octets. `end` checks that no octets are left."""

    __slots__ = ("_at", "_octets")

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._at = 0

    @property
    def remaining(self) -> int:
        return len(self._octets) - self._at

    def octets(self, count: int) -> bytes:
        # Checked before the slice is made, so that a claimed length costs nothing.
        start = self._at
        if count > len(self._octets) - start:
            raise InvalidOer("truncated")
        self._at = start + count
        return self._octets[start : self._at]

    def fixed(self, layout: Struct) -> tuple[Any, ...]:
        """Several fields of fixed sizes, big-endian, at once."""
        return layout.unpack(self.octets(layout.size))

    def u8(self) -> int:
        return self.octets(1)[0]

    def u64(self) -> int:
        return int.from_bytes(self.octets(8), "big")

    def length(self) -> int:
        if self._at >= len(self._octets):
            raise InvalidOer("truncated")
        first = self._octets[self._at]
        self._at += 1
        if first < 0x80:
            return first
        count = first & 0x7F
        if not 1 <= count <= _LENGTH_OCTETS_MAX:
            raise InvalidOer(f"expected a length in 1 to {_LENGTH_OCTETS_MAX} octets")
        digits = self.octets(count)
        value = int.from_bytes(digits, "big")
        if digits[0] == 0 or value < 0x80:
            raise InvalidOer("non-canonical length")
        return value

    def var_octets(self, limit: int) -> bytes:
        count = self.length()
        if count > limit:
            raise InvalidOer(f"expected at most {limit} octets, got {count}")
        return self.octets(count)

    def last_var_octets(self, limit: int) -> bytes:
        value = self.var_octets(limit)
        self.end()
        return value

    def end(self) -> None:
        if self._at != len(self._octets):
            raise InvalidOer("trailing bytes")


def open_envelope(octets: bytes) -> tuple[int, OctetReader]:
    """The type of a packet, and a reader of its body. The body must have exactly the stated length.
    It is read in place, without a copy."""
    reader = OctetReader(octets)
    kind = reader.u8()
    missing = reader.length() - reader.remaining
    if missing:
        raise InvalidPacket("truncated" if missing > 0 else "trailing bytes")
    return kind, reader


def envelope(kind: int, *fields: bytes) -> bytes:
    """A packet: its type, the length of its body, and its body."""
    return b"".join([u8(kind), length(sum(map(len, fields))), *fields])


def u8(value: int) -> bytes:
    return _unsigned(value, 1, U8_MAX)


def u64(value: int) -> bytes:
    return _unsigned(value, 8, U64_MAX)


def octets(value: bytes, count: int) -> bytes:
    if len(value) != count:
        raise InvalidOer(f"expected exactly {count} octets, got {len(value)}")
    return value


def length(count: int) -> bytes:
    if count < 0x80:
        return u8(count)
    size = (count.bit_length() + 7) // 8
    if size > _LENGTH_OCTETS_MAX:
        raise InvalidOer(f"expected a length in 1 to {_LENGTH_OCTETS_MAX} octets")
    return u8(0x80 | size) + count.to_bytes(size, "big")


def var_octets(value: bytes, limit: int) -> bytes:
    if len(value) > limit:
        raise InvalidOer(f"expected at most {limit} octets, got {len(value)}")
    return length(len(value)) + value


def _unsigned(value: int, size: int, maximum: int) -> bytes:
    if not 0 <= value <= maximum:
        raise InvalidOer(f"expected an integer from 0 to {maximum}")
    return value.to_bytes(size, "big")
