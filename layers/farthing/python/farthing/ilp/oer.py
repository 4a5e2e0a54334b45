"""Canonical octet encoding rules: the integers and octet strings that ILP packets are made of.

Reading is strict: what has a second spelling, is cut short or has something behind it is refused.
"""

from struct import Struct
from typing import Any, Final

U8_MAX: Final = 2**8 - 1
U16_MAX: Final = 2**16 - 1
U64_MAX: Final = 2**64 - 1

# A length of more octets than this counts more than any machine holds.
_LENGTH_OCTETS_MAX: Final = 8


class InvalidPacket(ValueError):
    """Bytes that are no ILP packet, or a packet that cannot be put into bytes."""


class InvalidOer(InvalidPacket):
    """An integer or octet string that breaks the canonical encoding."""


class Reader:
    """Takes fields off the front of some octets; `end` then says that nothing is left."""

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

    def u16(self) -> int:
        return int.from_bytes(self.octets(2), "big")

    def u64(self) -> int:
        return int.from_bytes(self.octets(8), "big")

    def length(self) -> int:
        first = self.u8()
        if first < 0x80:
            return first
        count = first & 0x7F
        if not 1 <= count <= _LENGTH_OCTETS_MAX:
            raise InvalidOer("length of an unusable size")
        digits = self.octets(count)
        value = int.from_bytes(digits, "big")
        if digits[0] == 0 or value < 0x80:
            raise InvalidOer("non-canonical length")
        return value

    def var_octets(self, limit: int) -> bytes:
        count = self.length()
        if count > limit:
            raise InvalidOer(f"{count} octets where at most {limit} may be")
        return self.octets(count)

    def end(self) -> None:
        if self.remaining:
            raise InvalidOer("trailing bytes")


def u8(value: int) -> bytes:
    return _unsigned(value, 1, U8_MAX)


def u16(value: int) -> bytes:
    return _unsigned(value, 2, U16_MAX)


def u64(value: int) -> bytes:
    return _unsigned(value, 8, U64_MAX)


def octets(value: bytes, count: int) -> bytes:
    if len(value) != count:
        raise InvalidOer(f"{len(value)} octets where exactly {count} must be")
    return value


def length(count: int) -> bytes:
    if count < 0x80:
        return u8(count)
    size = (count.bit_length() + 7) // 8
    if size > _LENGTH_OCTETS_MAX:
        raise InvalidOer("length of an unusable size")
    return u8(0x80 | size) + count.to_bytes(size, "big")


def var_octets(value: bytes, limit: int) -> bytes:
    if len(value) > limit:
        raise InvalidOer(f"{len(value)} octets where at most {limit} may be")
    return length(len(value)) + value


def _unsigned(value: int, size: int, maximum: int) -> bytes:
    if not 0 <= value <= maximum:
        raise InvalidOer(f"integer outside 0 to {maximum}")
    return value.to_bytes(size, "big")
