"""Paying to have an event stored: what a relay asks for, the packet, and what came of it."""

import time
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

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
# Seconds between attempts to have a packet answered, and the statuses after which there is another.
_WAITS = (0.2, 0.6, 1.8)
_MAY_PASS = frozenset({429, 500, 502, 503, 504})
_TRIES = 4  # a share of the amount grows with it, by less and less


class NotPayable(ValueError):
    """The relay does not say how to pay it, or says so in a way that cannot be right."""


@dataclass(frozen=True, slots=True)
class RelayTerms:
    """Where and what a relay is paid."""

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
    """From a relay's own kind 10032, in the tag form."""
    tags = {tag[0]: tag[1] for tag in event.tags if len(tag) > 1}
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


def _checked(terms: RelayTerms) -> RelayTerms:
    tariff = terms.tariff
    prices = [tariff.per_byte, *tariff.kinds.values(), tariff.per_tag, tariff.free_tags]
    if not all(type(price) is int and price >= 0 for price in prices):
        raise NotPayable("a price is not a whole number")
    if not address.is_valid(terms.destination) or not is_hex64(terms.pubkey):
        raise NotPayable("the relay's ILP address or public key is not one")
    if not terms.endpoint.startswith(("http://", "https://")):
        raise NotPayable("the relay's ILP endpoint is not a URL")
    return terms


@dataclass(frozen=True, slots=True)
class Quote:
    """What a relay asks for one event, of a payer who is not its author."""

    event_id: str
    price: int
    destination: str
    endpoint: str
    condition: bytes


def quote_from_answer(answer: dict[str, Any]) -> Quote:
    """From what `POST /v1/quotes` answers."""
    try:
        quote = Quote(
            answer["event_id"], _whole_number(answer["price"]), answer["destination"],
            answer["endpoint"], bytes.fromhex(answer["condition"]),
        )  # fmt: skip
        reachable = quote.endpoint.startswith(("http://", "https://"))
        if not reachable or not address.is_valid(quote.destination):
            raise ValueError("neither a place to pay nor a way there")
        if len(quote.condition) != CONDITION_LENGTH:
            raise ValueError("no condition")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NotPayable("the relay's quote does not say how to pay") from None
    return quote


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("not a whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class PreparedPayment:
    """A packet ready to send, and the preimage that proves that it was delivered; None where only
    the relay can know it."""

    prepare: Prepare
    fulfillment: bytes | None

    @property
    def amount(self) -> int:
        return self.prepare.amount


def prepare_payment(
    event: Event, author_secret: bytes, terms: RelayTerms, now: datetime, amount: int | None = None
) -> PreparedPayment:
    """The packet that stores an event of our own, at its price unless told otherwise."""
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
    """The packet that stores an event of somebody else, at the price that was quoted for it."""
    if quote.event_id != event.id:
        raise NotPayable("the quote is for another event")
    prepare = Prepare(
        amount=quote.price,
        expires_at=to_milliseconds(now + _EXPIRY),
        condition=quote.condition,
        destination=quote.destination,
        data=dumps_event(event),
    )
    return PreparedPayment(prepare, None)


def prepare_fill(answer: dict[str, Any], key: str, amount: int, now: datetime) -> PreparedPayment:
    """The packet that fills a purse, from what `POST /v1/quotes` answers for it."""
    try:
        destination, condition = answer["destination"], bytes.fromhex(answer["condition"])
        data = b64decode(answer["data"], validate=True)
        named = destination.rpartition(".")[2] == key and address.is_valid(destination)
        if not named or len(condition) != CONDITION_LENGTH:
            raise ValueError("another purse, or no condition")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NotPayable("the relay's quote does not say how to fill this purse") from None
    expires_at = to_milliseconds(now + _EXPIRY)
    return PreparedPayment(Prepare(amount, expires_at, condition, destination, data), None)


def largest_packet(reject: Reject) -> int:
    """What a connector takes at most, as it says in an F08; 0 for every other reject."""
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
    """Send the packet to a connector, ours or the relay's own, and check what it answers.

    Where a gateway answers that the connector behind it failed, nobody knows what became of the
    packet. The same packet is then sent again: a connector that has stored or settled it answers
    as it would have the first time, and it costs nothing more."""
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
    """Pay; where connectors on the way have kept of the amount, try again with that on top, at most
    `max_fees` in all. A packet that is rejected has cost nothing. The payment that was sent last,
    and its reply."""
    most = payment.amount + max_fees
    for _ in range(_TRIES):
        reply = send_payment(outbound, endpoint, token, payment)
        kept = kept_on_the_way(reply) if isinstance(reply, Reject) else 0
        if not kept or payment.amount + kept > most:
            break
        payment = _again(payment, payment.amount + kept)
    return payment, reply


def _again(payment: PreparedPayment, amount: int) -> PreparedPayment:
    expires_at = to_milliseconds(utc_now() + _EXPIRY)
    return replace(payment, prepare=replace(payment.prepare, amount=amount, expires_at=expires_at))


def kept_on_the_way(reject: Reject) -> int:
    """What connectors kept of a packet that arrived with less than the price, as the receiver of it
    says (F04); 0 for every other reject."""
    if reject.code != Code.F04_INSUFFICIENT_DESTINATION_AMOUNT:
        return 0
    try:
        told = orjson.loads(reject.data)
        return max(0, _whole_number(told["price"]) - _whole_number(told["received"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0


def utc_now() -> datetime:
    return datetime.now(UTC)
