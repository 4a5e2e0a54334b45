"""EVENT from a client: a publish, at the price and by the rules of an event that comes as TOON."""

from collections.abc import Mapping
from typing import Self

from farthing.btp_nips.answers import event_answer
from farthing.btp_nips.codec import check_timestamp
from farthing.btp_nips.errors import InvalidBody, PaymentInsufficient
from farthing.btp_nips.messages import EventMessage
from farthing.connector.incoming import IncomingPacket
from farthing.connector.toon_event import ToonEvent
from farthing.context import Agent
from farthing.ilp.reject import Rejected
from farthing.nostr.events import InvalidEvent, verify


class PublishMessage(ToonEvent):
    message: EventMessage

    @classmethod
    def of(cls, agent: Agent, packet: IncomingPacket, message: EventMessage) -> Self:
        try:
            verify(message.event)
        except InvalidEvent as error:
            raise InvalidBody(f"event: {error}") from None
        purchase = cls(agent, packet)
        purchase.message, purchase.event = message, message.event
        return purchase

    def check(self) -> None:
        settings = self.agent.settings
        check_timestamp(self.message.metadata, self.agent.now, settings.subscription_skew_seconds)
        super().check()

    def price_not_met(self, text: str, details: Mapping[str, str | int]) -> Rejected:
        return PaymentInsufficient(text, **details)

    def answer(self) -> bytes:
        return event_answer(self.event.id)
