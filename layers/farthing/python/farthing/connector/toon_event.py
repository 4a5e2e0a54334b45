"""A packet that carries a Nostr event as TOON: its amount pays for the event, and its fulfillment
says that the event is stored."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Self

import orjson

from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase
from farthing.context import Agent
from farthing.ilp.condition import Scheme, find_fulfillment
from farthing.ilp.reject import BadRequest, PriceNotMet, RefusedByReceiver, UnexpectedPayment
from farthing.ilp.toon import InvalidToon, loads
from farthing.nostr.events import Event, InvalidEvent, parse_event, verify
from farthing.nostr.kinds import Keeping, Kind
from farthing.nostr.messages import Refused
from farthing.ports.meter import Metric
from farthing.relay.fan_out import fan_out
from farthing.relay.policies import check_policies
from farthing.relay.price import writes_free
from farthing.store.events import Outcome, StoredEvent
from farthing.store.payment import BORROWED, Payment
from farthing.store.receipts import Receipt, Stored

log = logging.getLogger("farthing")

_JSON_BEGINS = (b"{", b"[", b'"', b" ", b"\n", b"\t", b"\r")
# A payer who reads this needs to pay nobody: the event is where it was to go.
STORED_ALREADY = "the event is stored already"


class ToonEvent(Purchase):
    event: Event

    @classmethod
    def read(cls, agent: Agent, packet: IncomingPacket) -> Self:
        purchase = cls(agent, packet)
        purchase.event = read_event(packet.prepare.data)
        return purchase

    @property
    def purpose(self) -> Stored:
        event = self.event
        return Stored(event.id, event.kind, len(self.prepare.data), event.expiration)

    def check(self) -> None:
        try:
            check_policies(self.agent, self.event)
        except Refused as refused:
            raise RefusedByReceiver(str(refused)) from None
        if self.event.is_protected:
            raise RefusedByReceiver("a protected event takes its author's own connection (NIP-70)")
        self._check_price()

    def _check_price(self) -> None:
        """The price counts the bytes that arrived."""
        settings, amount = self.agent.settings, self.prepare.amount
        if writes_free(self.agent, self.event.pubkey):
            return
        self.price = settings.tariff.price_event(self.event, len(self.prepare.data))
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
            relay_secret=self.agent.settings.secret,
            data=self.prepare.data,
            author=bytes.fromhex(self.event.pubkey),
            event_id=bytes.fromhex(self.event.id),
        )

    def reads(self, receipt: Receipt) -> Sequence[Callable[[], Any]]:
        """An event that stays tells by itself what has paid for it. One that is replaced or was
        never kept leaves only its receipt."""
        event = (lambda: self.agent.events.get(self.event.id),)
        if self.event.keeping is Keeping.REGULAR:
            return event
        return (*event, lambda: self.agent.ledger.receipt(receipt))

    def is_repeat(self, receipt: Receipt, found: Sequence[Any]) -> bool:
        # A repeat may be stored between the looks at receipt and event: either of them tells.
        stored: StoredEvent | None = found[0]
        known = len(found) > 1 and found[1] is not None
        if known or (stored is not None and receipt.has_paid(stored.payment)):
            return True
        if stored is not None and stored.payment != BORROWED:
            raise RefusedByReceiver(STORED_ALREADY)
        return False

    def commit(self, payment: Payment) -> None:
        if self.event.keeping is Keeping.EPHEMERAL:
            super().commit(payment)
        else:
            _check_outcome(self.agent.events.save(self.event, payment=payment))

    def was_committed(self, receipt: Receipt) -> bool:
        if super().was_committed(receipt):
            return True
        if receipt.amount or self.price:
            return False  # what was paid for left a receipt
        stored = self.agent.events.get(self.event.id)
        return stored is not None and receipt.has_paid(stored.payment)

    def after_commit(self) -> None:
        self.agent.meter.count(Metric.EVENTS_STORED)
        if self.event.keeping is Keeping.EPHEMERAL:
            self._pass_on()

    def _pass_on(self) -> None:
        """An ephemeral event is paid for once and sent out once. A failure to reach its subscribers
        comes too late to refuse the payment."""
        try:
            fan_out(self.agent, [self.event])
        except Exception:
            log.exception("an ephemeral event did not reach everyone")
            self.agent.meter.count(Metric.INTERNAL_ERRORS)

    def after_repeat(self) -> None:
        """Finish what an attempt may have left undone after its commit: what a kind 5 deletes. A
        kind 5 that has expired since is not stored once more."""
        if self.event.kind == Kind.DELETION and self.agent.events.was_here(self.event.id):
            self.agent.events.save(self.event)


def read_event(data: bytes) -> Event:
    if data[:1] in _JSON_BEGINS and _is_json(data):
        raise UnexpectedPayment("expected TOON, got JSON")
    try:
        fields = loads(data)
    except InvalidToon as error:
        raise UnexpectedPayment(f"the data is no event: {error}") from None
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
