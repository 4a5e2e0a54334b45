"""A packet that carries an Aether event as TOON."""

from collections.abc import Sequence
from typing import Any, Final, Self

from farthing.aether.errors import AetherError, InvalidEvent
from farthing.aether.events import Event, parse_event, verify
from farthing.connector.incoming import IncomingPacket
from farthing.connector.toon_event import EventPurchase
from farthing.context import Agent
from farthing.ilp.condition import Scheme, find_fulfillment
from farthing.ilp.reject import BadRequest, RefusedByReceiver, UnexpectedPayment
from farthing.ilp.toon import InvalidToon, loads
from farthing.relay.aether import ephemerals
from farthing.relay.aether.owner import owner_keys
from farthing.relay.aether.publish import event_policies
from farthing.store.spaces import AETHER
from farthing.store.table import TransactWrite

# An Ed25519 key shares no secret with the owner's key, so no scheme derives the condition from the
# author's key.
SCHEMES: Final = (Scheme.QUOTE, Scheme.INTEROP)


class AetherEvent(EventPurchase[Event]):
    space = AETHER

    @classmethod
    def read(cls, agent: Agent, packet: IncomingPacket) -> Self:
        purchase = cls(agent, packet)
        purchase.event = _parse(packet.prepare.data, agent.settings.max_event_tags)
        return purchase

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
        if self.event.pubkey != owner_keys(self.agent).pubkey:
            tariff = self.agent.settings.aether_tariff
            self.check_price(tariff.price_event(self.event, self.size))

    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        return find_fulfillment(
            self.prepare.condition,
            relay_secret=self.agent.settings.secret,
            data=self.prepare.data,
            event_id=bytes.fromhex(self.event.id),
            accept=SCHEMES,
        )

    def writes(self) -> Sequence[TransactWrite]:
        return (ephemerals.claim_of(self.event),) if self.is_ephemeral else ()

    def refusal(self, current: Sequence[Any]) -> RefusedByReceiver:
        return RefusedByReceiver("the event was passed on already")


def _parse(data: bytes, max_tags: int) -> Event:
    try:
        fields = loads(data)
    except InvalidToon as error:
        raise UnexpectedPayment(str(error)) from None
    try:
        return parse_event(fields, max_tags=max_tags)
    except InvalidEvent as error:
        raise BadRequest(f"{error.code}: {error}") from None
