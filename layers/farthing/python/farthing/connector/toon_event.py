"""Packets that carry an event: the amount pays for the event, and the fulfillment says that the
event is stored. What is common to all formats stands first, then the Nostr event as TOON."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, Self

import orjson

from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase
from farthing.context import Agent
from farthing.ilp.condition import Scheme, find_fulfillment
from farthing.ilp.reject import (
    BadRequest,
    PriceNotMet,
    RefusedByReceiver,
    Rejected,
    UnexpectedPayment,
)
from farthing.ilp.toon import FIELDS, InvalidToon, loads
from farthing.nostr.events import Event, InvalidEvent, parse_event, verify
from farthing.nostr.kinds import Keeping, Kind
from farthing.nostr.messages import Refused
from farthing.ports.meter import Metric
from farthing.relay.policies import check_policies
from farthing.relay.price import writes_free
from farthing.store.events import EventRecord, EventStore, Outcome
from farthing.store.payment import BORROWED, Payment
from farthing.store.receipts import Receipt, Stored
from farthing.store.spaces import NOSTR, E, Space

log = logging.getLogger("farthing")

_JSON_BEGINS = (b"{", b"[", b'"', b" ", b"\n", b"\t", b"\r")
# This text tells a payer that no payment is needed: the event is stored at its destination.
STORED_ALREADY = "the event is stored already"


class EventPurchase(Purchase, Generic[E]):
    """The storage of an event, of any format. A subclass reads and checks the event."""

    space: ClassVar[Space[Any]]
    event: E

    @property
    def purpose(self) -> Stored:
        event = self.event
        return Stored(event.id, event.kind, self.size, event.expiration, self.space.name)

    @property
    def size(self) -> int:
        """The price counts the bytes that arrived."""
        return len(self.prepare.data)

    def check_price(self, price: int) -> None:
        settings, amount = self.agent.settings, self.prepare.amount
        self.price = price
        if amount < price:
            details: dict[str, str | int] = {
                "price": str(price),
                "received": str(amount),
                "asset_code": settings.asset_code,
                "asset_scale": settings.asset_scale,
            }
            raise self.price_not_met(f"storing this event costs {price}", details)

    def price_not_met(self, text: str, details: Mapping[str, str | int]) -> Rejected:
        return PriceNotMet(text, orjson.dumps(details))

    @property
    def events(self) -> EventStore[E]:
        return self.agent.kept(self.space).events

    @property
    def is_ephemeral(self) -> bool:
        return self.event.keeping is Keeping.EPHEMERAL

    def reads(self, receipt: Receipt) -> Sequence[Callable[[], Any]]:
        """A stored event names its payment. A replaced or ephemeral event leaves only its
        receipt."""
        event = partial(self.events.get, self.event.id)
        if self.event.keeping is Keeping.REGULAR:
            return (event,)
        return event, partial(self.agent.ledger.receipt, receipt)

    def is_repeat(self, receipt: Receipt, found: Sequence[Any]) -> bool:
        # The event may be stored between the reads of receipt and event, so either of them shows a
        # repeat.
        stored: EventRecord[E] | None = found[0]
        if len(found) > 1 and self.is_repeat_of(found[1], receipt):
            return True
        if stored is None or stored.payment == BORROWED:
            return False
        if self.has_paid_for(stored.payment, receipt):
            return True
        raise RefusedByReceiver(STORED_ALREADY)

    def commit(self, payment: Payment) -> None:
        if self.is_ephemeral:
            super().commit(payment)
        else:
            _check_outcome(self.events.save(self.event, payment=payment))

    def was_committed(self, receipt: Receipt) -> bool:
        if super().was_committed(receipt):
            return True
        if receipt.amount or self.price:
            return False  # a paid purchase has left a receipt
        stored = self.events.get(self.event.id)
        return stored is not None and self.has_paid_for(stored.payment, receipt)

    def after_commit(self) -> None:
        self.agent.meter.count(Metric.EVENTS_STORED)
        if self.is_ephemeral:
            self._pass_on()

    def _pass_on(self) -> None:
        """An ephemeral event is paid for once and sent out once. A failed delivery to subscribers
        does not refuse the payment: the payment is committed."""
        # Imported here, because few paid events are ephemeral, and the import is slow.
        from farthing.relay.fan_out import fan_out

        try:
            fan_out(self.agent, [self.event], self.space)
        except Exception:
            log.exception("an ephemeral event did not reach every subscriber")
            self.agent.meter.count(Metric.INTERNAL_ERRORS)


class ToonEvent(EventPurchase[Event]):
    space = NOSTR

    @classmethod
    def read(cls, agent: Agent, packet: IncomingPacket) -> Self:
        purchase = cls(agent, packet)
        purchase.event = read_event(packet.prepare.data)
        return purchase

    def check(self) -> None:
        try:
            check_policies(self.agent, self.event)
        except Refused as refused:
            raise RefusedByReceiver(str(refused)) from None
        if self.event.is_protected:
            raise RefusedByReceiver("a protected event takes its author's own connection (NIP-70)")
        if not writes_free(self.agent, self.event.pubkey):
            tariff = self.agent.settings.tariff
            self.check_price(tariff.price_event(self.event, self.size))

    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        return find_fulfillment(
            self.prepare.condition,
            relay_secret=self.agent.settings.secret,
            data=self.prepare.data,
            author=bytes.fromhex(self.event.pubkey),
            event_id=bytes.fromhex(self.event.id),
        )

    def after_repeat(self) -> None:
        """Finish the deletions of a kind 5, which an earlier attempt may have left undone after its
        commit. A kind 5 that has expired meanwhile is not stored again."""
        if self.event.kind == Kind.DELETION and self.agent.events.was_here(self.event.id):
            self.agent.events.save(self.event)


def read_event(data: bytes) -> Event:
    if data[:1] in _JSON_BEGINS and _is_json(data):
        raise UnexpectedPayment("expected TOON, got JSON")
    try:
        fields = loads(data)
    except InvalidToon as error:
        raise UnexpectedPayment(str(error)) from None
    if fields.keys().isdisjoint(FIELDS):
        raise UnexpectedPayment("expected an event, got an object with none of its fields")
    try:
        event = parse_event(fields)
        verify(event)
    except InvalidEvent as error:
        raise BadRequest(str(error)) from None
    return event


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except ValueError:
        return False
    return True


def _check_outcome(outcome: Outcome) -> None:
    match outcome:
        case Outcome.DUPLICATE:
            raise RefusedByReceiver(STORED_ALREADY)
        case Outcome.SUPERSEDED:
            raise RefusedByReceiver("a newer version is stored")
        case Outcome.DELETED:
            raise RefusedByReceiver("its author has deleted this event")
