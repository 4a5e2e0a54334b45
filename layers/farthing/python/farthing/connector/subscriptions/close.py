"""CLOSE: end a subscription. A second CLOSE gets the same answer as the first."""

from dataclasses import replace

from farthing.btp_nips.answers import close_answer
from farthing.btp_nips.errors import InvalidAmount
from farthing.btp_nips.lifecycle import Ending, check_close, check_order
from farthing.btp_nips.messages import Close
from farthing.connector.subscriptions.ending import end_writes
from farthing.connector.subscriptions.message import SubscriberMessage
from farthing.store.table import TransactWrite


class CloseMessage(SubscriberMessage):
    message: Close

    def check(self) -> None:
        super().check()
        if self.prepare.amount:
            raise InvalidAmount(f"CLOSE takes no money, got {self.prepare.amount}")

    def plan(self) -> list[TransactWrite]:
        agent, old = self.agent, self.standing.subscription
        current = None if old is None else old.current
        check_close(self.prepare.amount, current)
        check_order(self.message.metadata.timestamp, current)
        assert old is not None
        self.subscription = old
        if old.state.has_ended:
            return []
        timestamp = self.message.metadata.timestamp
        ended = replace(old.ended(Ending.CLOSE, agent.now), last_timestamp=timestamp, is_told=True)
        self.subscription = ended
        store = agent.paid_subscriptions
        return [
            store.change(old, ended),
            self.noting(),
            *end_writes(agent, ended),
        ]

    def after_commit(self) -> None:
        super().after_commit()
        ended = self.present()
        if ended.is_push:
            self.agent.paid_subscriptions.forget_hints(ended)

    def answer(self) -> bytes:
        return close_answer(self.message.subscription_id, self.present().returned)
