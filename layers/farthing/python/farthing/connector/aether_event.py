"""A packet that carries an Aether event as TOON: its amount pays for the event, and its fulfillment
says that the event is stored."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import orjson

from farthing.aether.errors import AetherError, InvalidEvent
from farthing.aether.events import Event, parse_event, verify
from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase
from farthing.context import Agent
from farthing.ilp.condition import Scheme, find_fulfillment
from farthing.ilp.reject import BadRequest, PriceNotMet, RefusedByReceiver, UnexpectedPayment
from farthing.ilp.toon import InvalidToon, loads
from farthing.nostr.kinds import Keeping
from farthing.ports.meter import Metric
from farthing.relay.aether import ephemerals
from farthing.relay.aether.owner import owner_keys
from farthing.relay.aether.publish import event_policies
from farthing.store.events import EventRecord, Outcome
from farthing.store.payment import Payment
from farthing.store.receipts import Receipt, Stored
from farthing.store.spaces import AETHER
from farthing.store.table import TransactWrite

log = logging.getLogger("farthing")

# An Ed25519 key shares no secret with the owner's key, so no scheme derives the condition from the
# author's key.
SCHEMES: Final = (Scheme.QUOTE, Scheme.INTEROP)


class AetherEvent(Purchase):
    event: Event

    @classmethod
    def read(cls, agent: Agent, packet: IncomingPacket) -> Self:
        purchase = cls(agent, packet)
        purchase.event = _parse(packet.prepare.data, agent.settings.max_event_tags)
        return purchase

    @property
    def purpose(self) -> Stored:
        event, size = self.event, len(self.prepare.data)
        return Stored(event.id, event.kind, size, event.expiration, AETHER.name)

    def check(self) -> None:
        try:
            for policy in event_policies(self.agent):
                policy(self.event)
        except AetherError as error:
            raise RefusedByReceiver(f"{error.code}: {error}") from None
        try:
            verify(self.event)
        except AetherError as error:
            raise BadRequest(f"{error.code}: {error}") from None
        self._check_price()

    def _check_price(self) -> None:
        """The price counts the bytes that arrived."""
        settings, amount = self.agent.settings, self.prepare.amount
        if self.event.pubkey == owner_keys(self.agent).pubkey:
            return
        self.price = settings.aether_tariff.price_event(self.event, len(self.prepare.data))
        if amount < self.price:
            details = {
                "price": str(self.price),
                "received": str(amount),
                "asset_code": settings.asset_code,
                "asset_scale": settings.asset_scale,
            }
            raise PriceNotMet(f"storing this event costs {self.price}", orjson.dumps(details))

    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        return find_fulfillment(
            self.prepare.condition,
            relay_secret=bytes.fromhex(self.agent.settings.secret_key),
            data=self.prepare.data,
            event_id=bytes.fromhex(self.event.id),
            accept=SCHEMES,
        )

    @property
    def _is_ephemeral(self) -> bool:
        return self.event.keeping is Keeping.EPHEMERAL

    def reads(self, receipt: Receipt) -> Sequence[Callable[[], Any]]:
        """A stored event names its payment. A replaced or ephemeral event leaves only its
        receipt."""
        event = (lambda: self.agent.kept(AETHER).events.get(self.event.id),)
        if self.event.keeping is Keeping.REGULAR:
            return event
        return (*event, lambda: self.agent.ledger.receipt(receipt))

    def is_repeat(self, receipt: Receipt, found: Sequence[Any]) -> bool:
        stored: EventRecord[Event] | None = found[0]
        if len(found) > 1 and self.is_repeat_of(found[1], receipt):
            return True
        if stored is None:
            return False
        if self.has_paid_for(stored.payment, receipt):
            return True
        raise RefusedByReceiver("the event is stored already")

    def writes(self) -> Sequence[TransactWrite]:
        return (ephemerals.claim_of(self.event),) if self._is_ephemeral else ()

    def refusal(self, current: Sequence[Any]) -> RefusedByReceiver:
        return RefusedByReceiver("the event was passed on already")

    def commit(self, payment: Payment) -> None:
        if self._is_ephemeral:
            super().commit(payment)
            return
        match self.agent.kept(AETHER).events.save(self.event, payment=payment):
            case Outcome.DUPLICATE:
                raise RefusedByReceiver("the event is stored already")
            case Outcome.SUPERSEDED:
                raise RefusedByReceiver("a newer version is stored")

    def was_committed(self, receipt: Receipt) -> bool:
        if super().was_committed(receipt):
            return True
        if receipt.amount or self.price:
            return False  # a paid purchase has left a receipt
        stored = self.agent.kept(AETHER).events.get(self.event.id)
        return stored is not None and self.has_paid_for(stored.payment, receipt)

    def after_commit(self) -> None:
        self.agent.meter.count(Metric.EVENTS_STORED)
        if self._is_ephemeral:
            self._pass_on()

    def _pass_on(self) -> None:
        """A failed delivery to subscribers does not refuse the payment: the payment is
        committed."""
        try:
            ephemerals.pass_on(self.agent, self.event)
        except Exception:
            log.exception("an ephemeral event did not reach every subscriber")
            self.agent.meter.count(Metric.INTERNAL_ERRORS)


def _parse(data: bytes, max_tags: int) -> Event:
    try:
        fields = loads(data)
    except InvalidToon as error:
        raise UnexpectedPayment(str(error)) from None
    try:
        return parse_event(fields, max_tags=max_tags)
    except InvalidEvent as error:
        raise BadRequest(f"{error.code}: {error}") from None
