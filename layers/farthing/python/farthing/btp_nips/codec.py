"""The envelope codec: `u8 version | u8 type | u16be length | UTF-8 JSON`, strict on the way in.

A message's timestamp is compared with the clock by `check_timestamp`, not by `decode`.
"""

import re
from struct import Struct
from typing import Any, Final, NamedTuple

import orjson

from farthing.btp_nips import fields as read
from farthing.btp_nips.errors import (
    FilterRefused,
    InvalidBody,
    InvalidHeader,
    StaleTimestamp,
    UnexpectedMessage,
)
from farthing.btp_nips.fields import Fields
from farthing.btp_nips.messages import (
    HOPS_MAX,
    PATH_MAX,
    PRIORITY_MAX,
    PULL_MAX,
    Auth,
    Ceilings,
    Close,
    Closed,
    Count,
    Delivery,
    Eose,
    EventMessage,
    Message,
    MessageType,
    Metadata,
    Notice,
    Ok,
    Payment,
    Propagation,
    Purpose,
    Req,
)
from farthing.btp_nips.models import TTL_MAX, TTL_MIN, WINDOW_MAX, Model
from farthing.btp_nips.positions import InvalidPosition, Position, parse_position
from farthing.ilp import address
from farthing.ilp.packet import DATA_MAX
from farthing.nostr.events import MAX_CREATED_AT, Event, InvalidEvent, is_hex64, parse_event
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from farthing.nostr.kinds import Keeping, keeping
from farthing.nostr.messages import MAX_SUBSCRIPTION_ID

VERSION: Final = 1
HEADER_LENGTH: Final = 4
PAYLOAD_MAX: Final = DATA_MAX - HEADER_LENGTH

_HEADER: Final = Struct(">BBH")
_CURRENCY = re.compile(r"[A-Za-z0-9/]{1,16}").fullmatch
_TYPES: Final = {kind.value: kind for kind in MessageType}
_ENTRY_MORE: Final = len('"messageType":1,')
_EVENT_COUNT_MAX: Final = 2**53 - 1
# Messages that only relays send. If such a message lacks a part, no subscription can expect it.
_OF_RELAYS: Final = frozenset(
    {MessageType.NOTICE, MessageType.EOSE, MessageType.OK, MessageType.AUTH, MessageType.CLOSED}
)


class TooLarge(ValueError):
    """A message that is too large for a packet."""


class Written(NamedTuple):
    """A message as JSON, ready for both of its forms."""

    kind: MessageType
    body: bytes

    @property
    def fits(self) -> bool:
        return len(self.body) <= PAYLOAD_MAX

    @property
    def envelope(self) -> bytes:
        """The data of a packet."""
        if not self.fits:
            raise TooLarge(f"expected at most {PAYLOAD_MAX} octets, got {len(self.body)}")
        return _HEADER.pack(VERSION, self.kind, len(self.body)) + self.body

    @property
    def entry(self) -> bytes:
        """An entry of `messages` in the answer to a pull."""
        return b'{"messageType":%d,%b' % (self.kind, self.body[1:])

    @property
    def entry_size(self) -> int:
        """The entry's size in octets. A type has one digit."""
        return len(self.body) + _ENTRY_MORE


# Reading


def decode(data: bytes) -> Message:
    """The message in a packet's data. Raises InvalidHeader, InvalidBody or FilterRefused, and
    UnexpectedMessage for a message of a relay that lacks a part."""
    kind, octets = _open(data)
    try:
        body = orjson.loads(octets)
    except orjson.JSONDecodeError:
        raise InvalidBody("expected UTF-8 JSON") from None
    try:
        return _read(kind, body)
    except InvalidBody as error:
        if kind in _OF_RELAYS and type(body) is dict:
            raise UnexpectedMessage(f"nobody here waits for this message: {error.text}") from None
        raise


def decode_entry(entry: object) -> Message:
    """The message in an entry of `messages` in the answer to a pull."""
    kind = entry.get("messageType") if isinstance(entry, dict) else None
    if type(kind) is not int or kind not in _TYPES:
        raise InvalidHeader("expected an object with a messageType from 1 to 9")
    return _read(_TYPES[kind], entry)


def check_timestamp(metadata: Metadata, now: int, skew_seconds: int) -> None:
    if abs(metadata.timestamp - now) > skew_seconds:
        raise StaleTimestamp(
            f"expected a timestamp within {skew_seconds} seconds of {now}, got {metadata.timestamp}"
        )


def _open(data: bytes) -> tuple[MessageType, bytes]:
    if len(data) < HEADER_LENGTH:
        raise InvalidHeader(f"expected a header of {HEADER_LENGTH} octets, got {len(data)} octets")
    version, number, length = _HEADER.unpack_from(data)
    if version != VERSION:
        raise InvalidHeader(f"expected version {VERSION}, got {version}")
    if number not in _TYPES:
        raise InvalidHeader(f"expected a type from 1 to 9, got {number}")
    if length != len(data) - HEADER_LENGTH:
        raise InvalidHeader(f"expected {length} octets of JSON, got {len(data) - HEADER_LENGTH}")
    if length > PAYLOAD_MAX:
        raise InvalidHeader(f"expected at most {PAYLOAD_MAX} octets of JSON, got {length}")
    return _TYPES[number], data[HEADER_LENGTH:]


def _read(kind: MessageType, body: object) -> Message:
    if type(body) is not dict:
        raise InvalidBody("expected a JSON object")
    payment = _payment(body)
    nostr = read.object_in(body, "nostr")
    if "type" in nostr and nostr["type"] != kind.name:
        raise InvalidBody(f"type: expected {kind.name}, as the header says")
    metadata = _metadata(read.object_in(body, "metadata"))
    match kind:
        case MessageType.EVENT:
            subscription_id = _optional_subscription_id(nostr)
            return EventMessage(_event(nostr), payment, metadata, subscription_id)
        case MessageType.REQ:
            filters = _filters(nostr)
            token = read.optional_text(nostr, "resumptionToken")
            return Req(_subscription_id(nostr), filters, payment, metadata, token)
        case MessageType.CLOSE:
            return Close(_subscription_id(nostr), payment, metadata)
        case MessageType.COUNT:
            filters = _filters(nostr)
            if not filters:
                raise FilterRefused("expected at least one filter")
            return Count(_subscription_id(nostr), filters, payment, metadata)
        case MessageType.NOTICE:
            subscription_id = _optional_subscription_id(nostr)
            return Notice(read.text(nostr, "message"), payment, metadata, subscription_id)
        case MessageType.EOSE:
            return _eose(nostr, payment, metadata, body["metadata"])
        case MessageType.OK:
            event_id = read.hex64(nostr, "eventId")
            accepted = read.boolean(nostr, "accepted")
            return Ok(event_id, accepted, read.text(nostr, "message"), payment, metadata)
        case MessageType.AUTH:
            challenge = bytes.fromhex(read.hex64(nostr, "challenge"))
            return Auth(_subscription_id(nostr), challenge, payment, metadata)
        case MessageType.CLOSED:
            reason = read.text(nostr, "reason")
            return Closed(_subscription_id(nostr), reason, payment, metadata)


def _payment(body: Fields) -> Payment:
    payment = read.object_in(body, "payment")
    currency = read.optional_text(payment, "currency")
    if currency is not None and not _CURRENCY(currency):
        raise InvalidBody("currency: expected 1-16 letters, digits or slashes")
    return Payment(
        amount=read.amount(payment, "amount"),
        currency=currency or "",
        purpose=read.optional_choice(payment, "purpose", Purpose),
        model=_model(body, payment),
        ceilings=_ceilings(payment),
    )


def _model(body: Fields, payment: Fields) -> Model | None:
    """Other implementations write `paymentModel`, and some write it beside `payment` instead of
    inside."""
    stated = {
        read.optional_choice(payment, "model", Model),
        read.optional_choice(payment, "paymentModel", Model),
        read.optional_choice(body, "paymentModel", Model),
    } - {None}
    if len(stated) > 1:
        raise InvalidBody("model and paymentModel: expected the same model")
    return stated.pop() if stated else None


def _ceilings(payment: Fields) -> Ceilings | None:
    schedule = read.optional_object(payment, "feeSchedule")
    if schedule is None:
        return None
    return Ceilings(
        read.optional_amount(schedule, "baseRelayFee"), read.optional_amount(schedule, "eventFee")
    )


def _metadata(metadata: Fields) -> Metadata:
    sender, reply_to = _sender_and_reply_to(metadata)
    pull = read.optional_integer(metadata, "pull", 1, PULL_MAX)
    return Metadata(
        timestamp=read.integer(metadata, "timestamp", 0, MAX_CREATED_AT),
        ttl=read.optional_integer(metadata, "ttl", TTL_MIN, TTL_MAX),
        priority=read.optional_integer(metadata, "priority", 0, PRIORITY_MAX),
        sender=sender,
        delivery=_delivery(metadata, reply_to, pull),
        reply_to=reply_to,
        pull=pull,
        after=_position(metadata, "after"),
        window=read.optional_integer(metadata, "window", 1, WINDOW_MAX),
        propagate=_propagation(metadata),
        path=_path(metadata),
        origin=read.hex64(metadata, "origin") if "origin" in metadata else None,
        position=_position(metadata, "position"),
    )


def _sender_and_reply_to(metadata: Fields) -> tuple[str | None, str | None]:
    sender = read.optional_text(metadata, "sender")
    reply_to = read.optional_text(metadata, "replyTo")
    if reply_to is not None and not address.is_valid(reply_to):
        raise InvalidBody("replyTo: expected an ILP address")
    if sender is None or is_hex64(sender):
        return sender, reply_to
    if address.is_valid(sender):
        return None, reply_to or sender
    raise InvalidBody("sender: expected an x-only key as 64 lowercase hexadecimal digits")


def _delivery(metadata: Fields, reply_to: str | None, pull: int | None) -> Delivery | None:
    stated = read.optional_choice(metadata, "delivery", Delivery)
    if stated is Delivery.PUSH and reply_to is None:
        raise InvalidBody("delivery: push needs a replyTo")
    if stated is Delivery.PUSH and pull is not None:
        raise InvalidBody("delivery: expected pull with a number to pull, got push")
    if stated is not None:
        return stated
    if pull is not None:
        return Delivery.PULL
    return None if reply_to is None else Delivery.PUSH


def _position(metadata: Fields, name: str) -> Position | None:
    value = read.optional_text(metadata, name)
    try:
        return None if value is None else parse_position(value)
    except InvalidPosition as error:
        raise InvalidBody(f"{name}: {error}") from None


def _propagation(metadata: Fields) -> Propagation | None:
    wanted = read.optional_object(metadata, "propagate")
    if wanted is None:
        return None
    return Propagation(read.integer(wanted, "hops", 1, HOPS_MAX), read.amount(wanted, "budget"))


def _path(metadata: Fields) -> tuple[str, ...]:
    path = metadata.get("path", [])
    if type(path) is not list or len(path) > PATH_MAX or not all(map(is_hex64, path)):
        raise InvalidBody(f"path: expected at most {PATH_MAX} x-only keys")
    return tuple(path)


def _subscription_id(nostr: Fields) -> str:
    subscription_id = read.text(nostr, "subscriptionId")
    if not 1 <= len(subscription_id) <= MAX_SUBSCRIPTION_ID:
        raise InvalidBody(
            f"subscriptionId: expected 1-{MAX_SUBSCRIPTION_ID} characters, "
            f"got {len(subscription_id)}"
        )
    return subscription_id


def _optional_subscription_id(nostr: Fields) -> str | None:
    return _subscription_id(nostr) if "subscriptionId" in nostr else None


def _event(nostr: Fields) -> Event:
    try:
        return parse_event(nostr.get("event"))
    except InvalidEvent as error:
        raise InvalidBody(f"event: {error}") from None


def _filters(nostr: Fields) -> tuple[Filter, ...]:
    filters = nostr.get("filters")
    if type(filters) is not list:
        raise FilterRefused("expected an array of filters")
    try:
        return tuple(_stored_only(parse_filter(filter)) for filter in filters)
    except InvalidFilter as error:
        raise FilterRefused(str(error)) from None


def _stored_only(filter: Filter) -> Filter:
    """Ephemeral events have no change number, so a subscription never delivers them."""
    if filter.kinds and all(keeping(kind) is Keeping.EPHEMERAL for kind in filter.kinds):
        raise FilterRefused("expected a kind that is stored, got ephemeral kinds only")
    return filter


def _eose(nostr: Fields, payment: Payment, metadata: Metadata, fields: Fields) -> Eose:
    return Eose(
        _subscription_id(nostr),
        payment,
        metadata,
        event_count=read.optional_integer(fields, "eventCount", 0, _EVENT_COUNT_MAX),
        resumption_token=read.optional_text(fields, "resumptionToken"),
        credit=read.optional_amount(fields, "credit"),
    )


# Writing


def encode(message: Message) -> bytes:
    """The data of a packet that carries the message. Raises TooLarge."""
    return write(message).envelope


def write(message: Message) -> Written:
    metadata = _metadata_fields(message.metadata)
    nostr: dict[str, object]
    match message:
        case EventMessage():
            kind = MessageType.EVENT
            nostr = {
                "subscriptionId": message.subscription_id,
                "event": message.event.as_dict(),
            }
        case Req():
            kind = MessageType.REQ
            nostr = {
                "subscriptionId": message.subscription_id,
                "filters": [filter.as_dict() for filter in message.filters],
                "resumptionToken": message.resumption_token,
            }
        case Close():
            kind = MessageType.CLOSE
            nostr = {"subscriptionId": message.subscription_id}
        case Count():
            kind = MessageType.COUNT
            nostr = {
                "subscriptionId": message.subscription_id,
                "filters": [filter.as_dict() for filter in message.filters],
            }
        case Notice():
            kind = MessageType.NOTICE
            nostr = {"subscriptionId": message.subscription_id, "message": message.message}
        case Eose():
            kind = MessageType.EOSE
            nostr = {"subscriptionId": message.subscription_id}
            metadata |= {
                "eventCount": message.event_count,
                "resumptionToken": message.resumption_token,
                "credit": _decimal(message.credit),
            }
        case Ok():
            kind = MessageType.OK
            nostr = {
                "eventId": message.event_id,
                "accepted": message.accepted,
                "message": message.message,
            }
        case Auth():
            kind = MessageType.AUTH
            nostr = {
                "subscriptionId": message.subscription_id,
                "challenge": message.challenge.hex(),
            }
        case Closed():
            kind = MessageType.CLOSED
            nostr = {"subscriptionId": message.subscription_id, "reason": message.reason}
    return written(kind, _payment_fields(message.payment), nostr, metadata)


def written(kind: MessageType, payment: Fields, nostr: Fields, metadata: Fields) -> Written:
    """The message of these parts, without the fields that are None."""
    body = {
        "payment": _present(payment),
        "nostr": {"type": kind.name, **_present(nostr)},
        "metadata": _present(metadata),
    }
    return Written(kind, orjson.dumps(body))


def _payment_fields(payment: Payment) -> dict[str, object]:
    ceilings = payment.ceilings
    return {
        "amount": _decimal(payment.amount),
        "currency": payment.currency or None,
        "purpose": payment.purpose,
        "model": payment.model,
        "feeSchedule": None
        if ceilings is None
        else _present(
            {
                "baseRelayFee": _decimal(ceilings.base_relay_fee),
                "eventFee": _decimal(ceilings.event_fee),
            }
        ),
    }


def _metadata_fields(metadata: Metadata) -> dict[str, Any]:
    propagate = metadata.propagate
    return {
        "timestamp": metadata.timestamp,
        "ttl": metadata.ttl,
        "priority": metadata.priority,
        "sender": metadata.sender,
        "delivery": metadata.delivery,
        "replyTo": metadata.reply_to,
        "pull": metadata.pull,
        "after": _text(metadata.after),
        "window": metadata.window,
        "propagate": None
        if propagate is None
        else {"hops": propagate.hops, "budget": _decimal(propagate.budget)},
        "path": metadata.path or None,
        "origin": metadata.origin,
        "position": _text(metadata.position),
    }


def _decimal(number: int | None) -> str | None:
    return None if number is None else str(number)


def _text(position: Position | None) -> str | None:
    return None if position is None else str(position)


def _present(fields: Fields) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
