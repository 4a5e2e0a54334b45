"""A payment as part of another write: committed with what it pays for, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from farthing.store.table import Item, TransactionCancelled, TransactWrite


@dataclass(frozen=True, slots=True)
class Payment:
    writes: Sequence[TransactWrite]
    reference: str  # kept with what was paid for: it leads back to the receipt
    expires: int | None = None  # when the event goes, where it is kept for a time only

    @property
    def is_loan(self) -> bool:
        """Whether nobody paid, and the event gives way to whoever does."""
        return self.reference == BORROWED


# What the owner brings in costs nobody anything: imports, syncs, what the agent gathers.
OWNER = Payment((), "owner")
# The reference of events that were read elsewhere and are kept for a time. Nobody paid for them.
BORROWED = "borrowed"
# What gives room back is free: a deletion of something that its author has stored here.
ROOM = Payment((), "room")


class PaymentRefused(Exception):
    """The payment's own conditions do not hold: for each of its writes, whether, and what stands
    there instead."""

    def __init__(self, failed: Sequence[bool], current: Sequence[Item | None]) -> None:
        super().__init__("the payment was refused")
        self.failed = failed
        self.current = current


def raise_if_refused(cancelled: TransactionCancelled, first: int) -> None:
    """PaymentRefused if a write from position `first` on broke the transaction."""
    if any(cancelled.failed[first:]):
        raise PaymentRefused(cancelled.failed[first:], cancelled.current[first:]) from None
