"""Deliveries of other relays to our own subscriptions. A delivery is stored before its packet is
fulfilled, and is fulfilled only if one of our subscriptions expects it."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Self

import orjson

from farthing.btp_nips.conditions import delivery_fulfillment, fulfils
from farthing.btp_nips.errors import (
    FilterRefused,
    InvalidAmount,
    InvalidBody,
    UnexpectedMessage,
    UnknownCondition,
)
from farthing.btp_nips.messages import Auth, EventMessage, Message, delivered_for
from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Unrecorded
from farthing.context import Agent
from farthing.ilp.condition import InvalidPubkey, Scheme
from farthing.ilp.packet import Prepare
from farthing.nostr.events import Event, InvalidEvent, verify
from farthing.nostr.filters import parse_filter
from farthing.nostr.messages import Refused
from farthing.relay.policies import check_policies
from farthing.store.outgoing_subscriptions import Outgoing
from farthing.store.payment import BORROWED, Payment
from farthing.store.receipts import Purpose, Subscribed
from farthing.store.table import TransactWrite

_BORROWED_SECONDS: Final = 24 * 3600


def awaited(agent: Agent, message: Message) -> Outgoing | None:
    """Our own subscription that a message is for, if there is one."""
    named = delivered_for(message)
    return None if named is None else agent.outgoing_subscriptions.get(*named)


def is_a_delivery(agent: Agent, prepare: Prepare, message: Message) -> bool:
    """Whether a relay has sent this message as a delivery, expected or not. A published event has
    no position, and a condition of another scheme."""
    named = delivered_for(message)
    if named is None or prepare.amount:
        return False
    if message.metadata.position is not None:
        return True
    secret, relay = bytes.fromhex(agent.settings.secret_key), bytes.fromhex(named[0])
    try:
        return fulfils(delivery_fulfillment(secret, relay, prepare.data), prepare.condition)
    except InvalidPubkey:
        return False


class IncomingDelivery(Unrecorded):
    message: Message
    outgoing: Outgoing
    is_revenue = False

    @classmethod
    def of(cls, agent: Agent, packet: IncomingPacket, message: Message) -> Self:
        outgoing = awaited(agent, message)
        if outgoing is None:
            raise UnexpectedMessage("nobody here waits for this message")
        purchase = cls(agent, packet)
        purchase.message, purchase.outgoing = message, outgoing
        return purchase

    @property
    def purpose(self) -> Purpose:
        return Subscribed(self.outgoing.relay, self.outgoing.id, len(self.prepare.data))

    def check(self) -> None:
        if self.prepare.amount:
            raise InvalidAmount(f"a delivery carries no money, got {self.prepare.amount}")
        if isinstance(self.message, EventMessage):
            try:
                verify(self.message.event)
            except InvalidEvent as error:
                raise InvalidBody(f"event: {error}") from None
            self._check_wanted(self.message.event)

    def _check_wanted(self, event: Event) -> None:
        """An event for our own subscribers is stored here. So it passes the checks of any other
        event, and must match the filters of our subscription."""
        if not self.outgoing.is_upstream:
            return
        filters = [parse_filter(each) for each in orjson.loads(self.outgoing.filters)]
        if not any(filter.matches(event) for filter in filters):
            raise FilterRefused("expected an event that matches the subscription's filters")
        try:
            check_policies(self.agent, event)
        except Refused as refused:
            raise InvalidBody(str(refused)) from None

    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        secret = bytes.fromhex(self.agent.settings.secret_key)
        relay = bytes.fromhex(self.outgoing.relay)
        try:
            fulfillment = delivery_fulfillment(secret, relay, self.prepare.data)
        except InvalidPubkey:
            raise UnknownCondition("expected a valid public key of the relay") from None
        if not fulfils(fulfillment, self.prepare.condition):
            raise UnknownCondition("expected a condition that the relay has made for us")
        return Scheme.AUTHOR, fulfillment

    def writes(self) -> Sequence[TransactWrite]:
        if isinstance(self.message, Auth) or self.outgoing.is_upstream:
            return ()
        digest = sha256(self.prepare.data).hexdigest()
        position = self.message.metadata.position
        data, now_ms = self.prepare.data, self.agent.now_ms
        return [
            self.agent.outgoing_subscriptions.arrival(self.outgoing, data, digest, position, now_ms)
        ]

    def commit(self, payment: Payment) -> None:
        if self.outgoing.is_upstream and isinstance(self.message, EventMessage):
            expires = self.agent.now + _BORROWED_SECONDS
            self.agent.events.save(self.message.event, payment=Payment((), BORROWED, expires))
        for write in self.writes():
            self.agent.engine.write(write)  # type: ignore[arg-type]
