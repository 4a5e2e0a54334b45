"""The answers of a STREAM receiver to Prepares. No state is kept between packets.

The receiver takes money and no data: data frames are skipped, and the limits in its answers allow
none. The caller books the money between `receive` and `StreamPayment.fulfill`.
"""

import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from farthing.ilp.condition import condition_of
from farthing.ilp.oer import U64_MAX, InvalidPacket, u64
from farthing.ilp.packet import (
    TYPE_FULFILL,
    TYPE_PREPARE,
    TYPE_REJECT,
    Code,
    Fulfill,
    Prepare,
    Reject,
)
from farthing.ilp.stream import NONCE_LENGTH, Keys, StreamPacket, keys_of
from farthing.ilp.stream_frames import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionDataBlocked,
    ConnectionMaxData,
    ConnectionMaxStreamId,
    ConnectionNewAddress,
    ConnectionStreamIdBlocked,
    ErrorCode,
    Frame,
    StreamData,
    StreamDataBlocked,
    StreamMaxData,
    StreamMaxMoney,
    StreamMoney,
    StreamMoneyBlocked,
)

# The RFC's default: each end may open ten streams. It also bounds how long a reply gets.
MAX_STREAM_ID: Final = 20
MAX_DATA: Final = 0

RandomOctets = Callable[[int], bytes]

_StreamFrame = StreamMoney | StreamMoneyBlocked | StreamData | StreamDataBlocked

# Senders count from one (a few from zero), so the number shows which packet is the first.
_FIRST_SEQUENCE: Final = 1
# One message for every reason: connectors can read the message, and must not learn the sender's
# minimum.
_NOT_FULFILLED: Final = "STREAM packet is not fulfilled"

_ASKS_FOR_ASSET: Final = (ConnectionNewAddress, ConnectionAssetDetails)
_ASKS_FOR_MAXIMA: Final = (
    ConnectionNewAddress,
    ConnectionMaxData,
    ConnectionDataBlocked,
    ConnectionMaxStreamId,
    ConnectionStreamIdBlocked,
)


@dataclass(frozen=True, slots=True)
class Asset:
    code: str
    scale: int


@dataclass(frozen=True, slots=True)
class Limits:
    packet_amount: int = U64_MAX  # the largest amount of one packet
    stream_amount: int = U64_MAX  # the largest amount of one stream, told to the sender


NO_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class StreamPayment:
    """A Prepare that may be fulfilled, once its amount is booked. The amount can be zero."""

    amount: int
    fulfillment: bytes = field(repr=False)
    _reply: "_Reply" = field(repr=False)

    def fulfill(self) -> Fulfill:
        return Fulfill(self.fulfillment, self._reply.data(TYPE_FULFILL))

    def decline(self, message: str) -> Reject:
        """The receiver wants no more money: the sender is told that the connection is closed."""
        closed = ConnectionClose(ErrorCode.APPLICATION_ERROR, message)
        return self._reply.reject(Code.F99_APPLICATION_ERROR, message, closed)

    def postpone(self, code: Code, message: str) -> Reject:
        """The money cannot be booked now: the sender may try again."""
        return self._reply.reject(code, message)


def receive(
    prepare: Prepare,
    *,
    secret: bytes,
    address: str,
    asset: Asset,
    limits: Limits = NO_LIMITS,
    random_octets: RandomOctets = secrets.token_bytes,
) -> StreamPayment | Reject:
    """The payment that `prepare` makes on the connection with this secret, or the answer if it
    makes none.

    `address` is the receiver's own, which a Reject names as its origin.
    """
    if prepare.amount > limits.packet_amount:
        return Reject(
            Code.F08_AMOUNT_TOO_LARGE,
            address,
            "amount is above the maximum of a packet",
            u64(prepare.amount) + u64(limits.packet_amount),
        )
    keys = keys_of(secret)
    try:
        request = keys.open(prepare.data)
    except InvalidPacket:
        return Reject(Code.F06_UNEXPECTED_PAYMENT, address, "no STREAM packet of this connection")
    if request.ilp_type != TYPE_PREPARE:
        return Reject(Code.F00_BAD_REQUEST, address, "STREAM packet is not meant for a Prepare")
    reply = _Reply(keys, address, request, prepare.amount, asset, limits, random_octets)
    return _decide(prepare, request, keys, reply)


def _decide(
    prepare: Prepare, request: StreamPacket, keys: Keys, reply: "_Reply"
) -> StreamPayment | Reject:
    if any(isinstance(frame, ConnectionClose) for frame in request.frames):
        closed = ConnectionClose(ErrorCode.NO_ERROR, "")
        return reply.reject(Code.F99_APPLICATION_ERROR, _NOT_FULFILLED, closed)
    if prepare.amount < request.amount:
        return reply.reject(Code.F99_APPLICATION_ERROR, _NOT_FULFILLED)
    fulfillment = keys.fulfil(prepare.data)
    if not hmac.compare_digest(condition_of(fulfillment), prepare.condition):
        # Senders probe a path with conditions that nobody can fulfil.
        return reply.reject(Code.F99_APPLICATION_ERROR, _NOT_FULFILLED)
    return StreamPayment(prepare.amount, fulfillment, reply)


@dataclass(frozen=True, slots=True)
class _Reply:
    """Answers one request; each answer is encrypted under a nonce of its own."""

    keys: Keys = field(repr=False)
    address: str
    request: StreamPacket
    received: int
    asset: Asset
    limits: Limits
    random_octets: RandomOctets

    def reject(self, code: Code, message: str, *first: Frame) -> Reject:
        return Reject(code, self.address, message, self.data(TYPE_REJECT, first))

    def data(self, ilp_type: int, first: Iterable[Frame] = ()) -> bytes:
        frames = (*first, *self._frames(ilp_type))
        answer = StreamPacket(self.request.sequence, ilp_type, self.received, frames)
        return self.keys.seal(answer, self.random_octets(NONCE_LENGTH))

    def _frames(self, ilp_type: int) -> Iterator[Frame]:
        asked = self.request.frames
        is_first = self.request.sequence <= _FIRST_SEQUENCE
        if is_first or any(isinstance(frame, _ASKS_FOR_ASSET) for frame in asked):
            yield ConnectionAssetDetails(self.asset.code, self.asset.scale)
        if is_first or any(isinstance(frame, _ASKS_FOR_MAXIMA) for frame in asked):
            yield ConnectionMaxData(MAX_DATA)
            yield ConnectionMaxStreamId(MAX_STREAM_ID)
        # No total is kept, so the answer states the amount of this packet as received.
        brought = shares(self.received, asked) if ilp_type == TYPE_FULFILL else {}
        for stream_id in _streams(asked, StreamMoney, StreamMoneyBlocked):
            amount = brought.get(stream_id, 0)
            yield StreamMaxMoney(stream_id, self.limits.stream_amount, amount)
        for stream_id in _streams(asked, StreamData, StreamDataBlocked):
            yield StreamMaxData(stream_id, MAX_DATA)


def shares(amount: int, frames: Iterable[Frame]) -> dict[int, int]:
    """The division of `amount` between the streams. The lowest stream gets the remainder."""
    wanted: dict[int, int] = {}
    for frame in frames:
        if isinstance(frame, StreamMoney) and frame.shares:
            wanted[frame.stream_id] = wanted.get(frame.stream_id, 0) + frame.shares
    if not wanted:
        return {}
    total = sum(wanted.values())
    divided = {each: amount * count // total for each, count in wanted.items()}
    divided[min(divided)] += amount - sum(divided.values())
    return divided


def _streams(frames: Iterable[Frame], *kinds: type[_StreamFrame]) -> list[int]:
    """The streams that frames of these kinds name, each once, up to the largest allowed stream."""
    named = {frame.stream_id for frame in frames if isinstance(frame, kinds)}
    return sorted(each for each in named if each <= MAX_STREAM_ID)
