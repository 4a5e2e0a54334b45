"""The seam for protocols that are paid by packet: receivers, and what a packet buys from them.

A receiver recognises packets that are addressed to us, by their address or by their data, and reads
each into a `Purchase`. The connector does everything that is the same for all of them: condition,
balance, transaction, receipt, fulfilment, repeats. To add a receiver:

1. In a module of your own, subclass `Purchase`. Read the packet in `read` and raise a `Rejected`
   (any code, any data) for what you do not take.
2. Give the class a purpose in `store.receipts`, or use one that is there.
3. Add `Receiver(name, recognises, YourPurchase.read)` to the list in `connector.receivers`, before
   every receiver that would recognise the same packets.

What happens to a purchase, in order; each step is a method that can be overridden:

- `check`: refuse what may not be bought, or not at this amount. Raises `Rejected`.
- `find_fulfillment`: the scheme that made the condition, and its preimage. None is rejected (F05),
  unless the receiver raises a reject of its own.
- `reads` and `is_repeat`: look at the store, side by side with the balance and the rate. True means
  that the same payment has bought this before: nothing is charged again.
- `commit`: one transaction of the receiver's `writes` and the payment's. Where the balance has no
  room, the connector rejects (T04). Where a write of the receiver's own is refused, `refusal` says
  with what.
- `after_commit`, or `after_repeat` where `is_repeat` was true or the commit was lost and has
  happened all the same.
- `answer`: the data of the FULFILL, made after the commit, from the present state.

An exception before the commit changes nothing. After the commit it is T00, and the payer's repeat
comes to `after_repeat` and `answer`: so both must be safe to run twice.

A packet of amount 0 moves no money and leaves no receipt. A receiver for which such a packet has an
effect recognises repeats by records of its own (`reads`, `is_repeat`, `was_committed`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from farthing.connector.incoming import IncomingPacket
from farthing.context import Agent
from farthing.ilp.condition import Scheme
from farthing.ilp.packet import Prepare
from farthing.ilp.reject import RefusedByReceiver, Rejected
from farthing.store.payment import Payment, raise_if_refused
from farthing.store.receipts import Purpose, Receipt
from farthing.store.table import Item, TransactionCancelled, TransactWrite


class Purchase(ABC):
    """What one packet for us buys, as its receiver has read it."""

    # Whether the amount is earned now. Money that is paid in advance is earned when it is drawn.
    is_revenue: ClassVar[bool] = True

    def __init__(self, agent: Agent, packet: IncomingPacket) -> None:
        self.agent = agent
        self.peer = packet.peer
        self.prepare: Prepare = packet.prepare
        self.price = 0  # what we ask for, for the receipt; set by `read` or `check`

    @classmethod
    @abstractmethod
    def read(cls, agent: Agent, packet: IncomingPacket) -> Self:
        """Read the packet, without a look at the store. Raises Rejected."""

    @property
    @abstractmethod
    def purpose(self) -> Purpose:
        """What the receipt says that the packet has paid for."""

    @abstractmethod
    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        """The scheme that made the packet's condition, and the preimage."""

    def check(self) -> None:  # noqa: B027 - nothing to refuse is the default
        """Refuse what may not be bought, or not at this amount. Raises Rejected."""

    def reads(self, receipt: Receipt) -> Sequence[Callable[[], Any]]:
        """What to look up before anything is written; the calls run side by side."""
        return (lambda: self.agent.ledger.receipt(receipt),)

    def is_repeat(self, receipt: Receipt, found: Sequence[Any]) -> bool:
        """Whether `found`, the results of `reads`, say that this payment has bought this before.
        Raises Rejected where something else stands in the way."""
        return found[0] is not None

    def writes(self) -> Sequence[TransactWrite]:
        """The writes that make the purchase, for the transaction that pays for it."""
        return ()

    def commit(self, payment: Payment) -> None:
        """Make the purchase and the payment in one transaction. Raises PaymentRefused where the
        payment's own conditions do not hold, and Rejected where the receiver's do not."""
        own = self.writes()
        if not own and not payment.writes:
            return
        try:
            self.agent.engine.transact([*own, *payment.writes])
        except TransactionCancelled as cancelled:
            raise_if_refused(cancelled, len(own))
            raise self.refusal(cancelled.current[: len(own)]) from None

    def refusal(self, current: Sequence[Item | None]) -> Rejected:
        """The reject for a transaction that a condition of the receiver's own writes has refused.
        `current` has the item that stands in the way of each write."""
        return RefusedByReceiver("the state of this purchase has changed: send the packet again")

    def was_committed(self, receipt: Receipt) -> bool:
        """Whether this payment has bought this, asked after a commit that seems to have failed."""
        return self.agent.ledger.receipt(receipt) is not None

    def after_commit(self) -> None:  # noqa: B027 - nothing to do is the default
        """What follows the commit."""

    def after_repeat(self) -> None:  # noqa: B027
        """What follows for a repeat: an earlier attempt may have ended after its commit."""

    def answer(self) -> bytes:
        """The data of the FULFILL."""
        return b""


class Receiver(NamedTuple):
    name: str
    recognises: Callable[[Agent, Prepare], bool]  # looks at the packet alone
    read: Callable[[Agent, IncomingPacket], Purchase]
