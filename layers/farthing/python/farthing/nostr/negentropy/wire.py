"""The negentropy wire format: varints, bounds and ranges, decoded strictly.

A bound is 8 bytes of big-endian timestamp, then the id prefix. So bounds and the records of a
sealed vector can be compared bytewise.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias

ID_SIZE = 32
FINGERPRINT_SIZE = 16
TIMESTAMP_SIZE = 8
RECORD_SIZE = TIMESTAMP_SIZE + ID_SIZE

VERSION = 0x61
VERSIONS = range(0x60, 0x70)

MAX_U64 = 2**64 - 1
MAX_VARINT_SIZE = 10

Bound: TypeAlias = bytes
START: Bound = bytes(TIMESTAMP_SIZE)
INFINITY: Bound = MAX_U64.to_bytes(TIMESTAMP_SIZE, "big")


class InvalidNegentropy(ValueError):
    """The peer's message is not valid negentropy V1."""


class Mode(IntEnum):
    SKIP = 0
    FINGERPRINT = 1
    ID_LIST = 2


class Range(NamedTuple):
    """A range from the upper bound of the range before it up to `upper`, exclusive."""

    upper: Bound
    mode: Mode
    payload: bytes = b""  # a fingerprint, or the concatenated ids of a list


# A look-up in this table is several times faster than calling the enum, and a message has many
# ranges.
_MODES = tuple(Mode)


def encode_varint(value: int) -> bytes:
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F | 0x80)
    return bytes(reversed(digits))


def decode_varint(message: bytes, at: int) -> tuple[int, int]:
    """The value at `at`, and the start of the next field."""
    if at < len(message) and message[at] < 0x80:  # most are one byte, and there may be millions
        return message[at], at + 1
    value = 0
    for offset, byte in enumerate(message[at : at + MAX_VARINT_SIZE], 1):
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            if value > MAX_U64:
                break
            return value, at + offset
    if len(message) - at < MAX_VARINT_SIZE:
        raise InvalidNegentropy("message ends inside a varint")
    raise InvalidNegentropy("varint does not fit 64 bits")


def timestamp_of(bound: Bound) -> int:
    return int.from_bytes(bound[:TIMESTAMP_SIZE], "big")


def minimal_bound(previous: bytes, current: bytes) -> Bound:
    """The shortest bound above the record `previous` and not above the record `current`."""
    shared = 0
    while previous[shared] == current[shared]:
        shared += 1
    return current[: max(TIMESTAMP_SIZE, shared + 1)]


def encode_bound(bound: Bound, previous: Bound) -> bytes:
    prefix = bound[TIMESTAMP_SIZE:]
    infinite = bound.startswith(INFINITY)
    distance = 0 if infinite else 1 + timestamp_of(bound) - timestamp_of(previous)
    return encode_varint(distance) + encode_varint(len(prefix)) + prefix


def decode_bound(message: bytes, at: int, previous: Bound) -> tuple[Bound, int]:
    distance, at = decode_varint(message, at)
    timestamp = timestamp_of(previous) + distance - 1 if distance else MAX_U64
    if timestamp > MAX_U64:
        raise InvalidNegentropy("timestamp of a bound does not fit 64 bits")
    length, at = decode_varint(message, at)
    if length > ID_SIZE:
        raise InvalidNegentropy("id prefix of a bound is longer than an id")
    prefix, at = _take(message, at, length)
    bound = timestamp.to_bytes(TIMESTAMP_SIZE, "big") + prefix
    if bound < previous and _padded(bound) < _padded(previous):
        raise InvalidNegentropy("bounds are out of order")
    return bound, at


def encode_ranges(ranges: Iterable[Range], previous: Bound) -> bytes:
    """The octets of ranges that follow a range that ended at `previous`."""
    encoded = bytearray()
    for upper, mode, payload in ranges:
        encoded += encode_bound(upper, previous)
        encoded.append(mode)
        if mode is Mode.ID_LIST:
            encoded += encode_varint(len(payload) // ID_SIZE)
        encoded += payload
        previous = upper
    return bytes(encoded)


def decode_ranges(message: bytes) -> Iterator[Range]:
    """The ranges after the version byte, one at a time: a message may have millions."""
    at, previous = 1, START
    while at < len(message):
        upper, at = decode_bound(message, at, previous)
        mode, at = _decode_mode(message, at)
        payload, at = _decode_payload(message, at, mode)
        # In a cut message, the last fingerprint may follow an id list up to infinity.
        closing = mode is Mode.FINGERPRINT and at == len(message)
        if previous.startswith(INFINITY) and not closing:
            raise InvalidNegentropy("ranges go on after infinity")
        yield Range(upper, mode, payload)
        previous = upper


def decode_version(message: bytes) -> int:
    if not message or message[0] not in VERSIONS:
        raise InvalidNegentropy("message does not start with a protocol version")
    return message[0]


def _decode_mode(message: bytes, at: int) -> tuple[Mode, int]:
    number, at = decode_varint(message, at)
    if number >= len(_MODES):
        raise InvalidNegentropy(f"unknown mode {number}")
    return _MODES[number], at


def _decode_payload(message: bytes, at: int, mode: Mode) -> tuple[bytes, int]:
    if mode is Mode.SKIP:
        return b"", at
    if mode is Mode.FINGERPRINT:
        return _take(message, at, FINGERPRINT_SIZE)
    count, at = decode_varint(message, at)
    return _take(message, at, count * ID_SIZE)


def _take(message: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size > len(message) - at:
        raise InvalidNegentropy("message ends early")
    return message[at : at + size], at + size


def _padded(bound: Bound) -> bytes:
    return bound.ljust(RECORD_SIZE, b"\0")
