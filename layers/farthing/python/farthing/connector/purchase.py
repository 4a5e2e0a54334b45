"""The seam for protocols that are paid by packet: receivers, and what a packet buys from them.

A receiver recognises packets that are addressed to us, by their address or by their data, and reads
each into a `Purchase`. The connector does the work that all receivers have in common: condition,
balance, transaction, receipt, fulfilment, repeats. To add a receiver:

1. In a module of your own, subclass `Purchase`, and write a function that makes one from a packet,
   without access to the store. It raises a `Rejected` (any code, any data) for a packet that you do
   not accept.
2. Give the class a purpose in `store.receipts`, a new one or an existing one.
3. Add a `Receiver` with the function to the list in `connector.receivers`, before every receiver
   that would recognise the same packets. It recognises a packet by the segment behind our address,
   by the first octets of the data, or by a function of the packet.

What happens to a purchase, in order; each step is a method that can be overridden:

- `check`: refuse a forbidden purchase or a wrong amount. Raises `Rejected`.
- `find_fulfillment`: the scheme that made the condition, and its preimage. None is rejected (F05),
  unless the receiver raises a reject of its own.
- `reads` and `is_repeat`: read the store, in parallel with the balance and the rate. True means
  that the same payment has made this purchase before: nothing is charged again.
- `commit`: one transaction of the receiver's `writes` and the payment's. If the payment exceeds the
  balance limit, the connector rejects (T04). If the store refuses one of the receiver's own writes,
  `refusal` makes the reject.
- `after_commit`, or `after_repeat` if `is_repeat` was true, or if the answer to the commit was lost
  although the commit was made.
- `answer`: the data of the FULFILL, made after the commit, from the present state.

An exception before the commit changes nothing. An exception after the commit becomes a T00 reject.
The payer's repeat then runs `after_repeat` and `answer`, so both must be safe to run twice.

A packet of amount 0 moves no money and leaves no receipt. If such a packet has an effect, its
receiver recognises repeats by its own records (`reads`, `is_repeat`, `was_committed`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from farthing.connector.incoming import IncomingPacket
from farthing.context import Agent
from farthing.ilp.condition import Scheme
from farthing.ilp.packet import Code, Prepare
from farthing.ilp.reject import RefusedByReceiver, Rejected
from farthing.store.payment import Payment, raise_if_refused
from farthing.store.receipts import Purpose, Receipt
from farthing.store.table import Item, TransactionCancelled, TransactWrite


class Purchase(ABC):
    """The purchase that one packet for us asks for, as read by its receiver."""

    # Whether the amount is revenue now. Money that is paid in advance becomes revenue when it is
    # drawn.
    is_revenue: ClassVar[bool] = True

    def __init__(self, agent: Agent, packet: IncomingPacket) -> None:
        self.agent = agent
        self.peer = packet.peer
        self.prepare: Prepare = packet.prepare
        self.price = 0  # our price, for the receipt; set before or by `check`

    @property
    @abstractmethod
    def purpose(self) -> Purpose:
        """The purpose in the receipt: what the packet has paid for."""

    @abstractmethod
    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        """The scheme that made the packet's condition, and the preimage."""

    def check(self) -> None:  # noqa: B027 - nothing to refuse is the default
        """Refuse a forbidden purchase or a wrong amount. Raises Rejected."""

    def reads(self, receipt: Receipt) -> Sequence[Callable[[], Any]]:
        """The reads to make before anything is written. They run in parallel."""
        return (lambda: self.agent.ledger.receipt(receipt),)

    def is_repeat(self, receipt: Receipt, found: Sequence[Any]) -> bool:
        """Whether `found`, the results of `reads`, show that this payment has made this purchase
        before. Raises Rejected if `found` shows another obstacle."""
        return self.is_repeat_of(found[0], receipt)

    def is_repeat_of(self, earlier: Receipt | None, receipt: Receipt) -> bool:
        """Whether the payment repeats that of an earlier receipt under the same key. If only the
        amount differs, the payment is rejected: fulfilled, it would be paid and never booked."""
        if earlier is not None and not receipt.repeats(earlier):
            raise self.paid_before()
        return earlier is not None

    def has_paid_for(self, reference: str | None, receipt: Receipt) -> bool:
        """Whether this payment has paid for the stored event with this reference. A packet of
        amount 0 leaves no receipt."""
        if reference != receipt.reference:
            return False
        return not receipt.amount or receipt.repeats(self.agent.ledger.receipt(receipt))

    def paid_before(self) -> Rejected:
        """The reject of a packet that differs from an earlier one in the amount alone."""
        return RefusedByReceiver("the same was paid before, with another amount")

    def writes(self) -> Sequence[TransactWrite]:
        """The writes that make the purchase, for the transaction that pays for it."""
        return ()

    def commit(self, payment: Payment) -> None:
        """Make the purchase and the payment in one transaction. Raises PaymentRefused if a
        condition of the payment fails, and Rejected if a condition of the receiver fails."""
        own = self.writes()
        if not own and not payment.writes:
            return
        try:
            self.agent.engine.transact([*own, *payment.writes])
        except TransactionCancelled as cancelled:
            raise_if_refused(cancelled, len(own))
            raise self.refusal(cancelled.current[: len(own)]) from None

    def refusal(self, current: Sequence[Item | None]) -> Rejected:
        """The reject after a condition of the receiver's own writes has failed. `current` has the
        stored item of each failed write."""
        return RefusedByReceiver("the state of this purchase has changed: send the packet again")

    def was_committed(self, receipt: Receipt) -> bool:
        """Whether this payment has made this purchase. Called after a commit that seems to have
        failed."""
        return receipt.repeats(self.agent.ledger.receipt(receipt))

    def after_commit(self) -> None:  # noqa: B027 - nothing to do is the default
        """Work that follows the commit."""

    def after_repeat(self) -> None:  # noqa: B027
        """Work for a repeat: an earlier attempt may have stopped after its commit."""

    def answer(self) -> bytes:
        """The data of the FULFILL."""
        return b""


class Unrecorded(Purchase):
    """A purchase that leaves no record of its payment. A repeat is handled like the first
    packet."""

    def reads(self, receipt: Receipt) -> Sequence[Callable[[], Any]]:
        return ()

    def is_repeat(self, receipt: Receipt, found: Sequence[Any]) -> bool:
        return False

    def was_committed(self, receipt: Receipt) -> bool:
        return False


def _as_it_is(_code: Code, message: str) -> tuple[str, bytes]:
    return message, b""


class Receiver(NamedTuple):
    """Recognises a packet that meets every condition named here."""

    name: str
    read: Callable[[Agent, IncomingPacket], Purchase]
    segment: str = ""  # what follows our own address in the destination
    begins: tuple[bytes, ...] = (b"",)  # the data starts with one of these
    recognises: Callable[[Agent, Prepare], bool] | None = None  # looks at the packet alone
    # Message and data of a reject without data that the connector makes for such a packet.
    word: Callable[[Code, str], tuple[str, bytes]] = _as_it_is
