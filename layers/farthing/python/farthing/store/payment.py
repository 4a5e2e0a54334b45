"""A payment as part of another write: committed together with the purchase, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from farthing.store.table import Item, TransactionCancelled, TransactWrite


@dataclass(frozen=True, slots=True)
class Payment:
    writes: Sequence[TransactWrite]
    reference: str  # stored with the purchase: it leads to the receipt
    expires: int | None = None  # when the event expires, if it is stored for a limited time

    @property
    def is_loan(self) -> bool:
        """Whether the event is borrowed: stored for a limited time, without a payment. A paid event
        may replace it."""
        return self.reference == BORROWED


# The owner's own additions are free: imports, syncs, and events that the agent gathers.
OWNER = Payment((), "owner")
# The reference of events that were read at other relays and are stored for a limited time, unpaid.
BORROWED = "borrowed"
# Events that free storage cost nothing: the deletion of an event that its author has stored here.
ROOM = Payment((), "room")


class PaymentRefused(Exception):
    """A condition of the payment has failed. For each of its writes: whether it failed, and the
    stored item."""

    def __init__(self, failed: Sequence[bool], current: Sequence[Item | None]) -> None:
        super().__init__("the payment was refused")
        self.failed = failed
        self.current = current


def raise_if_refused(cancelled: TransactionCancelled, first: int) -> None:
    """Raise PaymentRefused if a write from position `first` on broke the transaction."""
    if any(cancelled.failed[first:]):
        raise PaymentRefused(cancelled.failed[first:], cancelled.current[first:]) from None
