"""FlatBuffers frames: `table Message { type: MessageType; payload: [ubyte]; }`.

The layout is not canonical, so every offset is followed and checked. Python's FlatBuffers runtime
does not check offsets, so it is not used here.
"""

import base64
import binascii
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from farthing.aether.errors import NotAether


class MessageType(IntEnum):
    HELLO = 0
    WELCOME = 1
    PUBLISH = 2
    SUBSCRIBE = 3
    UNSUBSCRIBE = 4
    EVENT = 5
    ACK = 6
    ERROR = 7
    NOISE = 8

    @property
    def word(self) -> str:
        """The `type` of the JSON message."""
        return self.name.lower()


BY_WORD: Final = {each.word: each for each in MessageType}

PREFIX: Final = 4  # octets of the length in front of a frame
# The offsets within a vtable of the entries for its two fields.
_TYPE_SLOT: Final = 4
_PAYLOAD_SLOT: Final = 6

_u32be = struct.Struct(">I")
_u32 = struct.Struct("<I")
_i32 = struct.Struct("<i")
_u16 = struct.Struct("<H")
# Offset of the table; the vtable: its size, the table's size, the offsets of type and payload; the
# table: distance to the vtable, distance to the payload, three octets of padding, the type; the
# payload's length.
_HEAD = struct.Struct("<I HHHH iI3xB I")


class InvalidFrame(NotAether):
    """The octets are not a valid frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    type: MessageType
    payload: bytes
    prefixed: bool = False  # with its length in front, as on a stream


def encode(frame: Frame) -> bytes:
    size = len(frame.payload)
    head = _HEAD.pack(12, 8, 12, 11, 4, 8, 8, frame.type, size)
    octets = head + frame.payload + bytes(-size % 4)
    return _u32be.pack(len(octets)) + octets if frame.prefixed else octets


def is_prefixed(octets: bytes) -> bool:
    """Whether the length of the frame stands in front of it."""
    return len(octets) >= PREFIX and _u32be.unpack_from(octets)[0] == len(octets) - PREFIX


def decode(octets: bytes) -> Frame:
    """The frame, with or without its length in front. Invalid octets of any kind raise
    InvalidFrame.

    A frame without the length cannot be taken for one with it: it begins with a small
    little-endian number, which would be a length of many megabytes.
    """
    prefixed = is_prefixed(octets)
    view = memoryview(octets)[PREFIX:] if prefixed else memoryview(octets)
    try:
        table = _u32.unpack_from(view, 0)[0]
        vtable = table - _i32.unpack_from(_from(view, table), 0)[0]
        slots, fields = _vtable(view, vtable), _table(view, table, vtable)
        kind = _field(slots, _TYPE_SLOT, fields, 1)
        # A frame without a type has the default, HELLO.
        number = 0 if kind is None else fields[kind]
        payload = _field(slots, _PAYLOAD_SLOT, fields, _u32.size)
        if payload is None:
            raise InvalidFrame("frame: expected a payload")
        return Frame(MessageType(number), _vector(view, table + payload), prefixed)
    except struct.error:
        raise InvalidFrame("frame: an offset points outside") from None
    except ValueError:
        raise InvalidFrame(f"frame: expected a type from 0 to {max(MessageType)}") from None


def _from(view: memoryview, start: int) -> memoryview:
    """The octets from `start` on. A negative `start` is refused: slices and `unpack_from` would
    count from the end."""
    if start < 0:
        raise InvalidFrame("frame: an offset points outside")
    return view[start:]


def _sized(view: memoryview, size: int) -> memoryview:
    if size > len(view):
        raise InvalidFrame("frame: a table does not fit")
    return view[:size]


def _vtable(view: memoryview, start: int) -> memoryview:
    rest = _from(view, start)
    return _sized(rest, _u16.unpack_from(rest, 0)[0])


def _table(view: memoryview, start: int, vtable: int) -> memoryview:
    return _sized(view[start:], _u16.unpack_from(view, vtable + _u16.size)[0])


def _field(slots: memoryview, slot: int, fields: memoryview, width: int) -> int | None:
    """The offset of a field in the table, or None if the field is absent."""
    if slot + _u16.size > len(slots):
        return None
    offset: int = _u16.unpack_from(slots, slot)[0]
    if not offset:
        return None
    if not _i32.size <= offset <= len(fields) - width:
        raise InvalidFrame("frame: a field lies outside its table")
    return offset


def _vector(view: memoryview, at: int) -> bytes:
    rest = view[at + _u32.unpack_from(view, at)[0] :]
    size = _u32.unpack_from(rest, 0)[0]
    if size > len(rest) - _u32.size:
        raise InvalidFrame("frame: the payload does not fit")
    return bytes(rest[_u32.size : _u32.size + size])


def to_text(octets: bytes) -> str:
    """The frame as base64, for transports that carry only text."""
    return base64.b64encode(octets).decode()


def from_text(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidFrame("expected JSON or base64 of a frame") from None
