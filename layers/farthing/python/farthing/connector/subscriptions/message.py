"""What all messages of subscribers have in common: who sent them, whether they are new, and a
commit that is planned anew where somebody else was faster."""

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
from farthing.btp_nips.lifecycle import check_replay
from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase
from farthing.context import Agent
from farthing.ilp.condition import Scheme
from farthing.ilp.reject import Rejected
from farthing.ports.meter import Metric
from farthing.store.paid_subscriptions import Message, PaidSubscription, Standing
from farthing.store.payment import Payment, PaymentRefused
from farthing.store.receipts import Purpose, Receipt, Subscribed
from farthing.store.table import Contended, TransactionCancelled, TransactWrite

_ATTEMPTS: Final = 100  # each lost race means that somebody else has got on


class SubscriberMessage(Purchase):
    """A message about a subscription that changes something, once.

    `plan` says what to write from what stands there. A packet of amount 0 leaves no receipt: the
    message itself is noted, by its hash.
    """

    # What exceeds the price is credit, and is earned when events are drawn for.
    is_revenue: ClassVar[bool] = False

    message: messages.Req | messages.Close
    owner: Owner
    standing: Standing

    def __init__(self, agent: Agent, packet: IncomingPacket) -> None:
        super().__init__(agent, packet)
        self.digest = sha256(self.prepare.data).hexdigest()
        self.subscription: PaidSubscription | None = None  # as planned
        self._found: PaidSubscription | None = None
        self.noted: Message | None = None

    @classmethod
    def read(cls, agent: Agent, packet: IncomingPacket) -> Self:
        raise NotImplementedError("envelopes are read by their receiver")

    @classmethod
    def of(
        cls, agent: Agent, packet: IncomingPacket, message: messages.Req | messages.Close
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
        """Whether the message had its effect before. The same octets under another condition speak
        for another owner, and are refused as those of another peer are."""
        if self.noted is None:
            return False
        if self.noted.owner != self.owner:
            raise Replayed("the same message has come with another condition")
        return check_replay(self.noted.peer, self.peer.id)

    def was_committed(self, receipt: Receipt) -> bool:
        self.subscription = None  # what was planned may not be what was written
        self.noted = self.agent.paid_subscriptions.message(self.digest)
        return self._check_noted()

    @abstractmethod
    def plan(self) -> list[TransactWrite]:
        """What to write, the account first, from `standing`; nothing where nothing changes. Sets
        `subscription`, as it will stand, and `price`. Raises Rejected."""

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
        raise RelayError("the subscription is being changed by others")

    def _payment(self) -> Sequence[TransactWrite]:
        """The payment with its price, which is known only now."""
        if not self.prepare.amount:
            return ()
        receipt = self.receipt._replace(price=self.price, purpose=self.purpose)
        most = self.peer.max_balance or self.agent.settings.max_balance
        return self.agent.ledger.payment(receipt, most).writes

    def _look_again(self, cancelled: TransactionCancelled, own: int) -> None:
        if any(cancelled.failed[own:]):
            raise PaymentRefused(cancelled.failed[own:], cancelled.current[own:]) from None
        refusal = self.refused_by(cancelled.failed[:own])
        if refusal is not None and not cancelled.failed[0]:
            raise refusal from None
        # The account has changed, or the message was noted: then the next look ends this.
        self.noted = self.agent.paid_subscriptions.message(self.digest)
        if self._check_noted():
            raise RelayError("the same message is being handled")
        self.standing = self._look()

    def refused_by(self, failed: Sequence[bool]) -> Rejected | None:
        """The reject where a limit has refused one of the writes."""
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
        """The subscription as it stands: as planned, or for a repetition as it is found."""
        if self.subscription is not None:
            return self.subscription
        if self._found is None:
            self._found = self._look().subscription
        if self._found is None:
            raise RelayError("the subscription is no longer there")
        return self._found
