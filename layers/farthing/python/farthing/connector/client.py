"""Paying a relay to store an event: the relay's terms, the packet, and the check of the reply."""

import time
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

from farthing.connector.exchange import ForgedFulfillment as ForgedFulfillment
from farthing.connector.exchange import PaymentFailed as PaymentFailed
from farthing.connector.exchange import RefusedByHttp, exchange
from farthing.ilp import address
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import (
    CONDITION_LENGTH,
    Code,
    Fulfill,
    Prepare,
    Reject,
    to_milliseconds,
)
from farthing.ilp.tariff import Tariff
from farthing.ilp.toon import dumps_event
from farthing.nostr.events import Event, is_hex64
from farthing.ports.outbound import Outbound

_U64_LENGTH = 8
_EXPIRY = timedelta(seconds=30)
_MARGIN_SECONDS = 5.0
# Seconds between attempts to send a packet, and the HTTP statuses that lead to another attempt.
_WAITS = (0.2, 0.6, 1.8)
_MAY_PASS = frozenset({429, 500, 502, 503, 504})
# A proportional fee rises with each attempt, by a smaller step each time.
_TRIES = 4
# The fields in the content of kind 10032, and the tags that state the same. An HTTP endpoint comes
# last, because it is preferred: of the endpoints for BTP, we can use only those that are HTTP URLs.
_TAG_OF_FIELD = {
    "ilpAddress": "ilp_address",
    "btpEndpoint": "ilp_endpoint",
    "httpEndpoint": "ilp_endpoint",
    "assetCode": "asset_code",
    "assetScale": "asset_scale",
}


class NotPayable(ValueError):
    """The relay states no terms of payment, or terms that are not valid."""


@dataclass(frozen=True, slots=True)
class RelayTerms:
    """A relay's prices, and the address and endpoint for payments."""

    destination: str
    endpoint: str
    pubkey: str
    tariff: Tariff


def terms_from_information(document: dict[str, Any]) -> RelayTerms:
    """From a relay information document (NIP-11)."""
    try:
        ilp, fees = document["ilp"], document.get("fees", {})
        kinds = {
            kind: fee["amount"] for fee in fees.get("publication", []) for kind in fee["kinds"]
        }
        per_byte = fees.get("publication_per_byte", {}).get("amount", 0)
        per_tag = fees.get("publication_per_tag", {})
        tariff = Tariff(
            per_byte, kinds, ilp["asset_code"], ilp["asset_scale"],
            per_tag.get("amount", 0), per_tag.get("free_tags", 0),
        )  # fmt: skip
        pubkey = document.get("self") or document["pubkey"]
        return _checked(RelayTerms(ilp["address"], ilp["endpoint"], pubkey, tariff))
    except (KeyError, TypeError, AttributeError):
        raise NotPayable("the relay information document does not say how to pay") from None


def terms_from_peer_info(event: Event, endpoint: str = "") -> RelayTerms:
    """From a relay's own kind 10032."""
    tags = peer_info_fields(event)
    try:
        kinds = {
            int(name.removeprefix("price_kind_")): int(value)
            for name, value in tags.items()
            if name.startswith("price_kind_")
        }
        tariff = Tariff(
            int(tags.get("price_per_byte", "0")), kinds,
            tags.get("asset_code", ""), int(tags.get("asset_scale", "0")),
            int(tags.get("price_per_tag", "0")), int(tags.get("free_tags", "0")),
        )  # fmt: skip
        where = endpoint or tags.get("ilp_endpoint", "")
        return _checked(RelayTerms(tags["ilp_address"], where, event.pubkey, tariff))
    except (KeyError, ValueError):
        raise NotPayable("the relay's kind 10032 does not say how to pay") from None


def peer_info_fields(event: Event) -> dict[str, str]:
    """The fields of a kind 10032 by the names of their tags. Deployed agents state some of them
    only in the content, as JSON."""
    in_tags = {tag[0]: tag[1] for tag in event.tags if len(tag) > 1}
    return _fields_in_content(event.content) | in_tags


def _fields_in_content(content: str) -> dict[str, str]:
    try:
        told = orjson.loads(content)
    except ValueError:
        return {}
    if not isinstance(told, dict):
        return {}
    return {
        tag: str(told[name])
        for name, tag in _TAG_OF_FIELD.items()
        if type(told.get(name)) in (str, int)
    }


def _checked(terms: RelayTerms) -> RelayTerms:
    tariff = terms.tariff
    prices = [tariff.per_byte, *tariff.kinds.values(), tariff.per_tag, tariff.free_tags]
    if not all(type(price) is int and price >= 0 for price in prices):
        raise NotPayable("expected whole numbers as the relay's prices")
    if not address.is_valid(terms.destination) or not is_hex64(terms.pubkey):
        raise NotPayable("expected an ILP address and a public key of the relay, got other text")
    if not terms.endpoint.startswith(("http://", "https://")):
        raise NotPayable("expected a URL as the relay's ILP endpoint")
    return terms


@dataclass(frozen=True, slots=True)
class Quote:
    """A relay's price and condition for one event, for a payer who is not the author."""

    event_id: str
    price: int
    destination: str
    endpoint: str
    condition: bytes


def quote_from_answer(answer: dict[str, Any]) -> Quote:
    """From the answer of `POST /v1/quotes`."""
    try:
        quote = Quote(
            answer["event_id"], _whole_number(answer["price"]), answer["destination"],
            answer["endpoint"], bytes.fromhex(answer["condition"]),
        )  # fmt: skip
        reachable = quote.endpoint.startswith(("http://", "https://"))
        if not reachable or not address.is_valid(quote.destination):
            raise ValueError("expected an ILP address and an endpoint")
        if len(quote.condition) != CONDITION_LENGTH:
            raise ValueError("expected a condition")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NotPayable("the relay's quote does not say how to pay") from None
    return quote


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("expected a whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class PreparedPayment:
    """A packet ready to send, and the preimage of its condition. The preimage is None if only the
    relay can compute it."""

    prepare: Prepare
    fulfillment: bytes | None

    @property
    def amount(self) -> int:
        return self.prepare.amount


def prepare_payment(
    event: Event, author_secret: bytes, terms: RelayTerms, now: datetime, amount: int | None = None
) -> PreparedPayment:
    """The packet that pays for an event of our own. The default amount is the event's price."""
    data = dumps_event(event)
    price = terms.tariff.price_event(event, len(data))
    fulfillment = author_fulfillment(author_secret, bytes.fromhex(terms.pubkey), data)
    prepare = Prepare(
        amount=price if amount is None else amount,
        expires_at=to_milliseconds(now + _EXPIRY),
        condition=condition_of(fulfillment),
        destination=terms.destination,
        data=data,
    )
    return PreparedPayment(prepare, fulfillment)


def prepare_quoted(event: Event, quote: Quote, now: datetime) -> PreparedPayment:
    """The packet that pays for another author's event, at the quoted price."""
    if quote.event_id != event.id:
        raise NotPayable("expected a quote for this event, got one for another event")
    prepare = Prepare(
        amount=quote.price,
        expires_at=to_milliseconds(now + _EXPIRY),
        condition=quote.condition,
        destination=quote.destination,
        data=dumps_event(event),
    )
    return PreparedPayment(prepare, None)


def prepare_fill(answer: dict[str, Any], key: str, amount: int, now: datetime) -> PreparedPayment:
    """The packet that fills a purse, from the answer of `POST /v1/quotes`."""
    try:
        destination, condition = answer["destination"], bytes.fromhex(answer["condition"])
        data = b64decode(answer["data"], validate=True)
        named = destination.rpartition(".")[2] == key and address.is_valid(destination)
        if not named or len(condition) != CONDITION_LENGTH:
            raise ValueError("expected the quote of this purse, with a condition")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NotPayable("the relay's quote does not say how to fill this purse") from None
    expires_at = to_milliseconds(now + _EXPIRY)
    return PreparedPayment(Prepare(amount, expires_at, condition, destination, data), None)


def largest_packet(reject: Reject) -> int:
    """The largest amount that a connector accepts, from its F08 reject; 0 for every other
    reject."""
    if reject.code != Code.F08_AMOUNT_TOO_LARGE or len(reject.data) != 2 * _U64_LENGTH:
        return 0
    return int.from_bytes(reject.data[_U64_LENGTH:])


def send_payment(
    outbound: Outbound,
    endpoint: str,
    token: str,
    payment: PreparedPayment,
    sleep: Callable[[float], None] = time.sleep,
) -> Fulfill | Reject:
    """Send the packet to a connector, ours or the relay's own, and check the reply.

    If a gateway answers that the connector behind it failed, the outcome of the packet is unknown.
    The same packet is then sent again: a connector that has already stored or settled the packet
    gives the same answer again, at no further cost."""
    seconds = _EXPIRY.total_seconds() + _MARGIN_SECONDS
    for wait in _WAITS:
        try:
            return exchange(outbound, endpoint, token, payment.prepare, seconds)
        except RefusedByHttp as refused:
            if refused.status not in _MAY_PASS:
                raise
        sleep(wait)
    return exchange(outbound, endpoint, token, payment.prepare, seconds)


def pay(
    outbound: Outbound, endpoint: str, token: str, payment: PreparedPayment, max_fees: int
) -> tuple[PreparedPayment, Fulfill | Reject]:
    """Pay. If connectors on the way keep fees, try again with the fees added, at most `max_fees` in
    all. A rejected packet costs nothing. Returns the last payment and its reply."""
    most = payment.amount + max_fees
    for _ in range(_TRIES):
        reply = send_payment(outbound, endpoint, token, payment)
        short = shortfall(reply) if isinstance(reply, Reject) else None
        if short is None or payment.amount + short.missing > most:
            break
        payment = _again(payment, payment.amount + short.missing)
    return payment, reply


def _again(payment: PreparedPayment, amount: int) -> PreparedPayment:
    expires_at = to_milliseconds(utc_now() + _EXPIRY)
    return replace(payment, prepare=replace(payment.prepare, amount=amount, expires_at=expires_at))


class Shortfall(NamedTuple):
    """A packet has arrived with less than the receiver's price. Connectors on the way may have kept
    fees, or the price has risen."""

    price: int
    received: int

    @property
    def missing(self) -> int:
        return self.price - self.received


def shortfall(reject: Reject) -> Shortfall | None:
    """The shortfall that a receiver's F04 reject states; None for every other reject."""
    if reject.code != Code.F04_INSUFFICIENT_DESTINATION_AMOUNT:
        return None
    try:
        told = orjson.loads(reject.data)
        price, received = (_whole_number(str(told[name])) for name in ("price", "received"))
    except (KeyError, TypeError, ValueError):
        return None
    return Shortfall(price, received) if received < price else None


def utc_now() -> datetime:
    return datetime.now(UTC)
