"""COUNT: how many stored events match. It changes nothing and costs nothing."""

from farthing.btp_nips.answers import count_answer
from farthing.btp_nips.errors import FilterRefused, InvalidAmount
from farthing.btp_nips.filter_sets import check_filters
from farthing.btp_nips.identity import owner_pubkey
from farthing.btp_nips.messages import Count
from farthing.connector.purchase import Unrecorded
from farthing.connector.subscriptions.message import OwnersMessage
from farthing.relay.visibility import visible_to
from farthing.store.payment import Payment
from farthing.store.planner import ScanTooLong


class CountMessage(Unrecorded, OwnersMessage):
    message: Count

    def check(self) -> None:
        super().check()
        settings = self.agent.settings
        check_filters(self.message.filters, settings.max_filters, settings.max_filter_values)
        if self.prepare.amount:
            raise InvalidAmount(f"COUNT takes no money, got {self.prepare.amount}")

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
