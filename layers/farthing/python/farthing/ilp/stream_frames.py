"""The frames of STREAM (RFC 0029) and their bytes: strict when reading, canonical when writing.

A frame of an unknown type is skipped, as the RFC demands. The receiver decides what to do with a
frame.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from farthing.ilp import oer
from farthing.ilp.oer import InvalidPacket, OctetReader
from farthing.ilp.packet import DATA_MAX


class ErrorCode(IntEnum):
    """Why a stream or a connection was closed. A sender may name others, which stay numbers."""

    NO_ERROR = 1
    INTERNAL_ERROR = 2
    ENDPOINT_BUSY = 3
    FLOW_CONTROL_ERROR = 4
    STREAM_ID_ERROR = 5
    STREAM_STATE_ERROR = 6
    FRAME_FORMAT_ERROR = 7
    PROTOCOL_VIOLATION = 8
    APPLICATION_ERROR = 9


@dataclass(frozen=True, slots=True)
class ConnectionClose:
    error_code: int
    error_message: str


@dataclass(frozen=True, slots=True)
class ConnectionNewAddress:
    # Text, not an address: senders that cannot receive leave it empty to ask for asset details.
    source_address: str


@dataclass(frozen=True, slots=True)
class ConnectionMaxData:
    max_offset: int


@dataclass(frozen=True, slots=True)
class ConnectionDataBlocked:
    max_offset: int


@dataclass(frozen=True, slots=True)
class ConnectionMaxStreamId:
    max_stream_id: int


@dataclass(frozen=True, slots=True)
class ConnectionStreamIdBlocked:
    max_stream_id: int


@dataclass(frozen=True, slots=True)
class ConnectionAssetDetails:
    source_asset_code: str
    source_asset_scale: int


@dataclass(frozen=True, slots=True)
class StreamClose:
    stream_id: int
    error_code: int
    error_message: str


@dataclass(frozen=True, slots=True)
class StreamMoney:
    stream_id: int
    shares: int


@dataclass(frozen=True, slots=True)
class StreamMaxMoney:
    stream_id: int
    receive_max: int
    total_received: int


@dataclass(frozen=True, slots=True)
class StreamMoneyBlocked:
    stream_id: int
    send_max: int
    total_sent: int


@dataclass(frozen=True, slots=True)
class StreamData:
    stream_id: int
    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StreamMaxData:
    stream_id: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class StreamDataBlocked:
    stream_id: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class StreamReceipt:
    stream_id: int
    receipt: bytes = field(repr=False)


Frame: TypeAlias = (
    ConnectionClose
    | ConnectionNewAddress
    | ConnectionMaxData
    | ConnectionDataBlocked
    | ConnectionMaxStreamId
    | ConnectionStreamIdBlocked
    | ConnectionAssetDetails
    | StreamClose
    | StreamMoney
    | StreamMaxMoney
    | StreamMoneyBlocked
    | StreamData
    | StreamMaxData
    | StreamDataBlocked
    | StreamReceipt
)


def read_var_uint(reader: OctetReader) -> int:
    digits = _read_digits(reader)
    if len(digits) > 8:
        raise InvalidPacket("integer above 64 bits")
    return int.from_bytes(digits, "big")


def write_var_uint(value: int) -> bytes:
    if not 0 <= value <= oer.U64_MAX:
        raise InvalidPacket(f"expected an integer from 0 to {oer.U64_MAX}")
    size = max(1, (value.bit_length() + 7) // 8)
    return oer.u8(size) + value.to_bytes(size, "big")


def _read_saturating(reader: OctetReader) -> int:
    """A maximum above 64 bits means the same as the largest one that fits."""
    digits = _read_digits(reader)
    return oer.U64_MAX if len(digits) > 8 else int.from_bytes(digits, "big")


def _read_digits(reader: OctetReader) -> bytes:
    digits = reader.var_octets(DATA_MAX)
    if not digits or (digits[0] == 0 and len(digits) > 1):
        raise InvalidPacket("non-canonical integer")
    return digits


def _read_octets(reader: OctetReader) -> bytes:
    return reader.var_octets(DATA_MAX)


def _write_octets(value: bytes) -> bytes:
    return oer.var_octets(value, DATA_MAX)


def _read_text(reader: OctetReader) -> str:
    try:
        return _read_octets(reader).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidPacket("text is not UTF-8") from None


def _write_text(value: str) -> bytes:
    try:
        return _write_octets(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidPacket("text is not UTF-8") from None


class _Field(NamedTuple):
    read: Callable[[OctetReader], Any]
    write: Callable[[Any], bytes]


_U8: Final = _Field(OctetReader.u8, oer.u8)
_UINT: Final = _Field(read_var_uint, write_var_uint)
_MAXIMUM: Final = _Field(_read_saturating, write_var_uint)
_OCTETS: Final = _Field(_read_octets, _write_octets)
_TEXT: Final = _Field(_read_text, _write_text)

# Type, frame, and how each of its fields is written, in their order.
_LAYOUTS: Final[tuple[tuple[int, type[Any], tuple[_Field, ...]], ...]] = (
    (0x01, ConnectionClose, (_U8, _TEXT)),
    (0x02, ConnectionNewAddress, (_TEXT,)),
    (0x03, ConnectionMaxData, (_UINT,)),
    (0x04, ConnectionDataBlocked, (_UINT,)),
    (0x05, ConnectionMaxStreamId, (_UINT,)),
    (0x06, ConnectionStreamIdBlocked, (_UINT,)),
    (0x07, ConnectionAssetDetails, (_TEXT, _U8)),
    (0x10, StreamClose, (_UINT, _U8, _TEXT)),
    (0x11, StreamMoney, (_UINT, _UINT)),
    (0x12, StreamMaxMoney, (_UINT, _MAXIMUM, _UINT)),
    (0x13, StreamMoneyBlocked, (_UINT, _MAXIMUM, _UINT)),
    (0x14, StreamData, (_UINT, _UINT, _OCTETS)),
    (0x15, StreamMaxData, (_UINT, _UINT)),
    (0x16, StreamDataBlocked, (_UINT, _UINT)),
    (0x17, StreamReceipt, (_UINT, _OCTETS)),
)
_BY_TYPE: Final = {kind: (frame, layout) for kind, frame, layout in _LAYOUTS}
_BY_FRAME: Final = {
    frame: (kind, tuple(zip([each.name for each in fields(frame)], layout, strict=True)))
    for kind, frame, layout in _LAYOUTS
}


def read_frame(reader: OctetReader) -> Frame | None:
    """The next frame, or None if its type is unknown."""
    kind = reader.u8()
    contents = OctetReader(_read_octets(reader))
    if kind not in _BY_TYPE:
        return None
    frame, layout = _BY_TYPE[kind]
    read: Frame = frame(*[each.read(contents) for each in layout])
    contents.end()
    return read


def write_frame(frame: Frame) -> bytes:
    kind, layout = _BY_FRAME[type(frame)]
    contents = b"".join([each.write(getattr(frame, name)) for name, each in layout])
    return oer.u8(kind) + _write_octets(contents)
