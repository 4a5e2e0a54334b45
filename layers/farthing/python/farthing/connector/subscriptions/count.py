"""COUNT: how many stored events match. It changes nothing and costs nothing."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from farthing.btp_nips.answers import count_answer
from farthing.btp_nips.codec import check_timestamp
from farthing.btp_nips.conditions import identify
from farthing.btp_nips.errors import FilterRefused, InvalidAmount
from farthing.btp_nips.filter_sets import check_filters
from farthing.btp_nips.identity import Owner, owner_pubkey
from farthing.btp_nips.messages import Count
from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase
from farthing.context import Agent
from farthing.ilp.condition import Scheme
from farthing.relay.visibility import visible_to
from farthing.store.payment import Payment
from farthing.store.planner import ScanTooLong
from farthing.store.receipts import Purpose, Receipt, Subscribed


class CountMessage(Purchase):
    message: Count
    owner: Owner
    is_revenue = False

    @classmethod
    def read(cls, agent: Agent, packet: IncomingPacket) -> Self:
        raise NotImplementedError("envelopes are read by their receiver")

    @classmethod
    def of(cls, agent: Agent, packet: IncomingPacket, message: Count) -> Self:
        purchase = cls(agent, packet)
        purchase.message = message
        return purchase

    @property
    def purpose(self) -> Purpose:
        return Subscribed(self.owner, self.message.subscription_id, len(self.prepare.data))

    def check(self) -> None:
        settings = self.agent.settings
        check_timestamp(self.message.metadata, self.agent.now, settings.subscription_skew_seconds)
        check_filters(self.message.filters, settings.max_filters, settings.max_filter_values)
        if self.prepare.amount:
            raise InvalidAmount(f"COUNT takes no money, got {self.prepare.amount}")

    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        self.owner, fulfillment = identify(
            self.prepare.condition,
            self.prepare.data,
            relay_secret=self.agent.settings.secret,
            sender=self.message.metadata.sender,
            peer_id=self.peer.id,
        )
        is_author = owner_pubkey(self.owner) is not None
        return (Scheme.AUTHOR if is_author else Scheme.INTEROP), fulfillment

    def reads(self, receipt: Receipt) -> Sequence[Callable[[], Any]]:
        return ()

    def is_repeat(self, receipt: Receipt, found: Sequence[Any]) -> bool:
        return False

    def was_committed(self, receipt: Receipt) -> bool:
        return False

    def commit(self, payment: Payment) -> None:
        """Count before the answer: a filter that is too broad is refused."""
        pubkey = owner_pubkey(self.owner)
        visible = visible_to(frozenset() if pubkey is None else frozenset({pubkey}))
        exactly = self.agent.settings.count_exactly
        try:
            self._count, self._approximate = self.agent.reader.count_any(
                self.message.filters, exactly, visible
            )
        except ScanTooLong:
            raise FilterRefused("a filter is too broad, narrow it") from None

    def answer(self) -> bytes:
        return count_answer(
            self.message.subscription_id, self._count, approximate=self._approximate
        )
