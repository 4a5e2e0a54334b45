"""The common part of all subscribers' messages: the owner, the recognition of repeats, and a commit
that is planned again after a lost race."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC
from hashlib import sha256
from typing import Any, ClassVar, Final, Self

from farthing.btp_nips import messages
from farthing.btp_nips.codec import check_timestamp
from farthing.btp_nips.conditions import identify
from farthing.btp_nips.errors import LimitExceeded, RelayError, Replayed
from farthing.btp_nips.identity import Owner, owner_pubkey
from farthing.btp_nips.lifecycle import REPLAY_SECONDS, check_replay
from farthing.btp_nips.positions import Position
from farthing.connector.incoming import IncomingPacket
from farthing.connector.known_peers import max_balance
from farthing.connector.purchase import Purchase
from farthing.context import Agent
from farthing.ilp.condition import Scheme
from farthing.ilp.reject import Rejected
from farthing.ports.meter import Metric
from farthing.store.paid_records import PaidSubscription, Standing
from farthing.store.paid_subscriptions import Message
from farthing.store.payment import Payment, PaymentRefused
from farthing.store.receipts import Purpose, Receipt, Subscribed
from farthing.store.table import Contended, TransactionCancelled, TransactWrite

_ATTEMPTS: Final = 100  # each lost race means that another message was handled


class OwnersMessage(Purchase):
    """A message for a relay. Its condition proves the owner of the subscription."""

    # The amount above the price is credit. It becomes revenue when events are charged.
    is_revenue: ClassVar[bool] = False

    message: messages.Req | messages.Close | messages.Count
    owner: Owner

    @classmethod
    def of(
        cls,
        agent: Agent,
        packet: IncomingPacket,
        message: messages.Req | messages.Close | messages.Count,
    ) -> Self:
        purchase = cls(agent, packet)
        purchase.message = message
        return purchase

    @property
    def purpose(self) -> Purpose:
        return Subscribed(self.owner, self.message.subscription_id, len(self.prepare.data))

    def check(self) -> None:
        settings = self.agent.settings
        check_timestamp(self.message.metadata, self.agent.now, settings.subscription_skew_seconds)

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


class SubscriberMessage(OwnersMessage):
    """A message about a subscription that changes something, once.

    `plan` makes the writes from the stored state. A packet of amount 0 leaves no receipt, so the
    hash of the message is stored.
    """

    message: messages.Req | messages.Close
    standing: Standing

    def __init__(self, agent: Agent, packet: IncomingPacket) -> None:
        super().__init__(agent, packet)
        self.digest = sha256(self.prepare.data).hexdigest()
        self.subscription: PaidSubscription | None = None  # the planned state
        self._found: PaidSubscription | None = None
        self.noted: Message | None = None

    def reads(self, receipt: Receipt) -> Sequence[Callable[[], Any]]:
        self.receipt = receipt
        return (self._look, lambda: self.agent.paid_subscriptions.message(self.digest))

    def _look(self) -> Standing:
        subscription_id = self.message.subscription_id
        return self.agent.paid_subscriptions.standing(self.owner, subscription_id, self.agent.now)

    def is_repeat(self, receipt: Receipt, found: Sequence[Any]) -> bool:
        self.standing, self.noted = found
        return self._check_noted()

    def _check_noted(self) -> bool:
        """Whether the message had its effect before. The same octets under another condition would
        belong to another owner. They are refused, as are the same octets from another peer."""
        if self.noted is None:
            return False
        if self.noted.owner != self.owner:
            raise Replayed("the same message has come with another condition")
        return check_replay(self.noted.peer, self.peer.id)

    def was_committed(self, receipt: Receipt) -> bool:
        self.subscription = None  # the written state may differ from the planned one
        self.noted = self.agent.paid_subscriptions.message(self.digest)
        return self._check_noted()

    @abstractmethod
    def plan(self) -> list[TransactWrite]:
        """The writes, made from `standing`, the account first. Empty if nothing changes. Sets
        `subscription` to the new state, and `price`. Raises Rejected."""

    def noting(self, start: Position | None = None) -> TransactWrite:
        """The write that stores the message's hash. The hash stays as long as the timestamp is
        accepted: otherwise the message could have its effect again. `start` is the position behind
        which its pull began."""
        agent, settings = self.agent, self.agent.settings
        accepted_until = self.message.metadata.timestamp + settings.subscription_skew_seconds
        until = max(agent.now + REPLAY_SECONDS, accepted_until)
        return agent.paid_subscriptions.note(self.digest, self.peer.id, self.owner, start, until)

    def commit(self, payment: Payment) -> None:
        for _ in range(_ATTEMPTS):
            own = self.plan()
            if not own:
                return
            paid = self._payment()
            try:
                self.agent.engine.transact([*own, *paid])
            except TransactionCancelled as cancelled:
                self._look_again(cancelled, len(own))
            except Contended:
                self.standing = self._look()
            else:
                return
        raise RelayError("other processes are changing the subscription")

    def _payment(self) -> Sequence[TransactWrite]:
        """The writes of the payment. Its price is known only after planning."""
        if not self.prepare.amount:
            return ()
        receipt = self.receipt._replace(price=self.price, purpose=self.purpose)
        most = max_balance(self.agent, self.peer)
        return self.agent.ledger.payment(receipt, most).writes

    def _look_again(self, cancelled: TransactionCancelled, own: int) -> None:
        if any(cancelled.failed[own:]):
            raise PaymentRefused(cancelled.failed[own:], cancelled.current[own:]) from None
        refusal = self.refused_by(cancelled.failed[:own])
        if refusal is not None and not cancelled.failed[0]:
            raise refusal from None
        # The account has changed, or the message was stored by a repeat: the next read shows which.
        self.noted = self.agent.paid_subscriptions.message(self.digest)
        if self._check_noted():
            raise RelayError("the same message is being handled")
        self.standing = self._look()

    def refused_by(self, failed: Sequence[bool]) -> Rejected | None:
        """The reject if a limit has refused one of the writes."""
        return None

    def too_many(self, text: str) -> Rejected:
        return LimitExceeded(text)

    def after_commit(self) -> None:
        self.agent.meter.count(Metric.REVENUE, self.price)
        self.agent.meter.count(Metric.PRICE, self.price)

    @property
    def milliseconds_left(self) -> int:
        expires = self.prepare.expires_at.replace(tzinfo=UTC).timestamp()
        return round(expires * 1000) - self.agent.now_ms

    def present(self) -> PaidSubscription:
        """The present state of the subscription: as planned, or as read from the store for a
        repeat."""
        if self.subscription is not None:
            return self.subscription
        if self._found is None:
            self._found = self._look().subscription
        if self._found is None:
            raise RelayError("the subscription is no longer there")
        return self._found
