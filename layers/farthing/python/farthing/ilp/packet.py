"""The three ILPv4 packets and their bytes: strict when reading, canonical when writing.

Every decoded packet encodes to the same bytes again. The connector decides what a packet means.
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
    F00_BAD_REQUEST = "F00"  # the packet is wrong in a way that has no code of its own
    F01_INVALID_PACKET = "F01"  # the packet breaks the syntax
    F02_UNREACHABLE = "F02"  # no route to the destination
    F03_INVALID_AMOUNT = "F03"  # an impossible amount, such as zero
    F04_INSUFFICIENT_DESTINATION_AMOUNT = "F04"  # less arrived than the receiver wants
    F05_WRONG_CONDITION = "F05"  # the receiver cannot fulfil this condition
    F06_UNEXPECTED_PAYMENT = "F06"  # the receiver cannot tell what the payment is for
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
# Peers may send any code, so the codes that ILPv4 does not know are counted together.
OTHER_CODE: Final = "Other"


def known_code(code: str) -> str:
    return code if code in _CODES else OTHER_CODE


def final(code: str) -> bool:
    return code.startswith("F")


# Fulfillments and data stay out of `repr`. A fulfillment is worth money until it has travelled
# back, and data would fill the log.
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
    """The moment in UTC, rounded down to the milliseconds that a packet can carry."""
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def encode(packet: Prepare | Fulfill | Reject) -> bytes:
    match packet:
        case Prepare():
            return oer.envelope(TYPE_PREPARE, *_prepare_body(packet))
        case Fulfill():
            return oer.envelope(TYPE_FULFILL, *_fulfill_body(packet))
        case Reject():
            return oer.envelope(TYPE_REJECT, *_reject_body(packet))


def decode(octets: bytes) -> Prepare | Fulfill | Reject:
    kind, body = oer.open_envelope(octets)
    if kind == TYPE_PREPARE:
        return _read_prepare(body)
    if kind == TYPE_FULFILL:
        return _read_fulfill(body)
    if kind == TYPE_REJECT:
        return _read_reject(body)
    raise InvalidPacket(f"expected a packet of type 12, 13 or 14, got {kind}")


def decode_prepare(octets: bytes) -> Prepare:
    packet = decode(octets)
    if not isinstance(packet, Prepare):
        raise InvalidPacket("expected a Prepare")
    return packet


def decode_reply(octets: bytes) -> Fulfill | Reject:
    packet = decode(octets)
    if isinstance(packet, Prepare):
        raise InvalidPacket("expected a Fulfill or a Reject, got a Prepare")
    return packet


def _prepare_body(packet: Prepare) -> list[bytes]:
    return [
        oer.u64(packet.amount),
        _expiry_octets(packet.expires_at),
        oer.octets(packet.condition, CONDITION_LENGTH),
        _address_octets(packet.destination),
        oer.var_octets(packet.data, DATA_MAX),
    ]


def _read_prepare(body: oer.OctetReader) -> Prepare:
    amount, expiry, condition = body.fixed(_PREPARE_START)
    return Prepare(
        amount=amount,
        expires_at=_expiry(expiry),
        condition=condition,
        destination=address.parse(_ascii(body.var_octets(address.MAX_LENGTH))),
        data=body.last_var_octets(DATA_MAX),
    )


def _fulfill_body(packet: Fulfill) -> list[bytes]:
    return [
        oer.octets(packet.fulfillment, CONDITION_LENGTH),
        oer.var_octets(packet.data, DATA_MAX),
    ]


def _read_fulfill(body: oer.OctetReader) -> Fulfill:
    return Fulfill(fulfillment=body.octets(CONDITION_LENGTH), data=body.last_var_octets(DATA_MAX))


def _reject_body(packet: Reject) -> list[bytes]:
    return [
        oer.octets(_ascii_octets(packet.code), _CODE_LENGTH),
        _address_octets(packet.triggered_by) if packet.triggered_by else oer.length(0),
        oer.var_octets(_message_octets(packet.message), MESSAGE_MAX),
        oer.var_octets(packet.data, DATA_MAX),
    ]


def _read_reject(body: oer.OctetReader) -> Reject:
    code = _ascii(body.octets(_CODE_LENGTH))
    triggered_by = _ascii(body.var_octets(address.MAX_LENGTH))
    return Reject(
        code=_CODES.get(code, code),
        triggered_by=address.parse(triggered_by) if triggered_by else "",
        message=_message(body.var_octets(MESSAGE_MAX)),
        data=body.last_var_octets(DATA_MAX),
    )


def _expiry_octets(moment: datetime) -> bytes:
    if moment.tzinfo is None:
        raise InvalidPacket("expected an expiry with a time zone")
    if moment.microsecond % 1000:
        raise InvalidPacket("expected an expiry in whole milliseconds")
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
        raise InvalidPacket("expected an expiry within the years 1 to 9999") from None


def _expiry(digits: bytes) -> datetime:
    # isdigit of bytes knows ASCII digits only; int alone would take signs and spaces.
    if not digits.isdigit():
        raise InvalidPacket("expected an expiry of digits")
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
        raise InvalidPacket("expected an expiry that is a valid date and time") from None


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
