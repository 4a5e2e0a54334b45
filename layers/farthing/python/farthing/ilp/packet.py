"""The three ILPv4 packets and their bytes: strict when reading, canonical when writing.

Every packet that decodes encodes to the same bytes again. What a packet means is for others.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from struct import Struct
from typing import Final

from farthing.ilp import address, oer
from farthing.ilp.oer import InvalidPacket as InvalidPacket

TYPE_PREPARE: Final = 12
TYPE_FULFILL: Final = 13
TYPE_REJECT: Final = 14

CONDITION_LENGTH: Final = 32
DATA_MAX: Final = 32767
MESSAGE_MAX: Final = 8191

_EXPIRY_LENGTH: Final = 17
_CODE_LENGTH: Final = 3
_PREPARE_START: Final = Struct(f">Q{_EXPIRY_LENGTH}s{CONDITION_LENGTH}s")


class Code(StrEnum):
    """The reject codes of ILPv4. A peer may send others, which stay plain text."""

    # Final: the same packet would be refused again.
    F00_BAD_REQUEST = "F00"  # something about the packet is wrong, and no other code says what
    F01_INVALID_PACKET = "F01"  # the packet breaks the syntax
    F02_UNREACHABLE = "F02"  # no route to the destination
    F03_INVALID_AMOUNT = "F03"  # the amount is one that cannot be, such as zero
    F04_INSUFFICIENT_DESTINATION_AMOUNT = "F04"  # less arrived than the receiver wants
    F05_WRONG_CONDITION = "F05"  # the receiver cannot fulfil this condition
    F06_UNEXPECTED_PAYMENT = "F06"  # the receiver cannot tell what is paid for
    F07_CANNOT_RECEIVE = "F07"  # the receiver may not take the payment
    F08_AMOUNT_TOO_LARGE = "F08"  # above a hop's maximum; data: u64 received, u64 maximum
    F99_APPLICATION_ERROR = "F99"  # the receiver's own reason; see message and data

    # Temporary: the same packet may pass later.
    T00_INTERNAL_ERROR = "T00"  # something unforeseen happened
    T01_PEER_UNREACHABLE = "T01"  # the next hop does not answer
    T02_PEER_BUSY = "T02"  # the next hop has too much to do
    T03_CONNECTOR_BUSY = "T03"  # this hop has too much to do
    T04_INSUFFICIENT_LIQUIDITY = "T04"  # a balance limit would be passed
    T05_RATE_LIMITED = "T05"  # too many packets from this sender
    T99_APPLICATION_ERROR = "T99"  # the receiver's own reason, for now

    # Relative: the packet was too small or too late for the path that it took.
    R00_TRANSFER_TIMED_OUT = "R00"  # the packet expired
    R01_INSUFFICIENT_SOURCE_AMOUNT = "R01"  # fees and rates left too little to forward
    R02_INSUFFICIENT_TIMEOUT = "R02"  # too little time left to forward
    R99_APPLICATION_ERROR = "R99"  # the receiver's own reason, for this amount or time


_CODES: Final = {code.value: code for code in Code}


def final(code: str) -> bool:
    return code.startswith("F")


def temporary(code: str) -> bool:
    return code.startswith("T")


def relative(code: str) -> bool:
    return code.startswith("R")


# Fulfillments and data stay out of `repr`: the one is worth money until it has
# travelled back, the other fills the log.
@dataclass(frozen=True, slots=True)
class Prepare:
    amount: int
    expires_at: datetime
    condition: bytes
    destination: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fulfill:
    fulfillment: bytes = field(repr=False)
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Reject:
    code: str
    triggered_by: str
    message: str
    data: bytes = field(default=b"", repr=False)


def to_milliseconds(moment: datetime) -> datetime:
    """The moment in UTC, rounded down to what a packet can carry."""
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def encode(packet: Prepare | Fulfill | Reject) -> bytes:
    match packet:
        case Prepare():
            return _envelope(TYPE_PREPARE, _prepare_body(packet))
        case Fulfill():
            return _envelope(TYPE_FULFILL, _fulfill_body(packet))
        case Reject():
            return _envelope(TYPE_REJECT, _reject_body(packet))


def decode(octets: bytes) -> Prepare | Fulfill | Reject:
    kind, body = _open(octets)
    packet = _read(kind, body)
    body.end()
    return packet


def decode_prepare(octets: bytes) -> Prepare:
    packet = decode(octets)
    if not isinstance(packet, Prepare):
        raise InvalidPacket("not a Prepare")
    return packet


def decode_reply(octets: bytes) -> Fulfill | Reject:
    packet = decode(octets)
    if isinstance(packet, Prepare):
        raise InvalidPacket("not a Fulfill or Reject")
    return packet


def _envelope(kind: int, fields: list[bytes]) -> bytes:
    size = sum(map(len, fields))
    return b"".join([oer.u8(kind), oer.length(size), *fields])


def _open(octets: bytes) -> tuple[int, oer.Reader]:
    # The body is what remains, so it is read in place instead of being copied.
    reader = oer.Reader(octets)
    kind = reader.u8()
    size = reader.length()
    if size > reader.remaining:
        raise InvalidPacket("truncated")
    if size < reader.remaining:
        raise InvalidPacket("trailing bytes")
    return kind, reader


def _read(kind: int, body: oer.Reader) -> Prepare | Fulfill | Reject:
    if kind == TYPE_PREPARE:
        return _read_prepare(body)
    if kind == TYPE_FULFILL:
        return _read_fulfill(body)
    if kind == TYPE_REJECT:
        return _read_reject(body)
    raise InvalidPacket("unknown packet type")


def _prepare_body(packet: Prepare) -> list[bytes]:
    return [
        oer.u64(packet.amount),
        _expiry_octets(packet.expires_at),
        oer.octets(packet.condition, CONDITION_LENGTH),
        _address_octets(packet.destination),
        oer.var_octets(packet.data, DATA_MAX),
    ]


def _read_prepare(body: oer.Reader) -> Prepare:
    amount, expiry, condition = body.fixed(_PREPARE_START)
    return Prepare(
        amount=amount,
        expires_at=_expiry(expiry),
        condition=condition,
        destination=address.parse(_ascii(body.var_octets(address.MAX_LENGTH))),
        data=body.var_octets(DATA_MAX),
    )


def _fulfill_body(packet: Fulfill) -> list[bytes]:
    return [
        oer.octets(packet.fulfillment, CONDITION_LENGTH),
        oer.var_octets(packet.data, DATA_MAX),
    ]


def _read_fulfill(body: oer.Reader) -> Fulfill:
    return Fulfill(fulfillment=body.octets(CONDITION_LENGTH), data=body.var_octets(DATA_MAX))


def _reject_body(packet: Reject) -> list[bytes]:
    return [
        oer.octets(_ascii_octets(packet.code), _CODE_LENGTH),
        _address_octets(packet.triggered_by) if packet.triggered_by else oer.length(0),
        oer.var_octets(_message_octets(packet.message), MESSAGE_MAX),
        oer.var_octets(packet.data, DATA_MAX),
    ]


def _read_reject(body: oer.Reader) -> Reject:
    code = _ascii(body.octets(_CODE_LENGTH))
    triggered_by = _ascii(body.var_octets(address.MAX_LENGTH))
    return Reject(
        code=_CODES.get(code, code),
        triggered_by=address.parse(triggered_by) if triggered_by else "",
        message=_message(body.var_octets(MESSAGE_MAX)),
        data=body.var_octets(DATA_MAX),
    )


def _expiry_octets(moment: datetime) -> bytes:
    if moment.tzinfo is None:
        raise InvalidPacket("expiry without a time zone")
    if moment.microsecond % 1000:
        raise InvalidPacket("expiry finer than a millisecond")
    utc = _in_utc(moment)
    # Written out because strftime does not pad years below 1000.
    return (
        f"{utc.year:04}{utc.month:02}{utc.day:02}"
        f"{utc.hour:02}{utc.minute:02}{utc.second:02}{utc.microsecond // 1000:03}"
    ).encode("ascii")


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidPacket("expiry outside the calendar") from None


def _expiry(digits: bytes) -> datetime:
    # isdigit of bytes knows ASCII digits only; int alone would take signs and spaces.
    if not digits.isdigit():
        raise InvalidPacket("expiry is not all digits")
    try:
        return datetime(
            int(digits[0:4]),
            int(digits[4:6]),
            int(digits[6:8]),
            int(digits[8:10]),
            int(digits[10:12]),
            int(digits[12:14]),
            int(digits[14:17]) * 1000,
            UTC,
        )
    except ValueError:
        raise InvalidPacket("expiry is no moment of the calendar") from None


def _address_octets(text: str) -> bytes:
    return oer.var_octets(address.parse(text).encode("ascii"), address.MAX_LENGTH)


def _message_octets(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidPacket("message is not UTF-8") from None


def _message(octets: bytes) -> str:
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidPacket("message is not UTF-8") from None


def _ascii_octets(text: str) -> bytes:
    if not text.isascii():
        raise InvalidPacket("text is not ASCII")
    return text.encode("ascii")


def _ascii(octets: bytes) -> str:
    if not octets.isascii():
        raise InvalidPacket("text is not ASCII")
    return octets.decode("ascii")
