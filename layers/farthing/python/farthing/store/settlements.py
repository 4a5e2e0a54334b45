"""Settlements: what was paid outside of Interledger, in either direction, each counted once."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256

from farthing.store.ledger import balance_place
from farthing.store.table import (
    Absent,
    Add,
    Engine,
    Put,
    Query,
    Table,
    TransactionCancelled,
    read_all,
)


class KeyUsedDifferently(Exception):
    """The idempotency key stands for another settlement."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """`received` lowers what the peer owes us; otherwise we paid, and it lowers what we owe."""

    peer: str
    key: str
    amount: int
    received: bool
    time: int


class Settlements:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def record(self, settlement: Settlement) -> bool:
        """Count a settlement; False if it was counted before."""
        place = _place(settlement.peer, settlement.key)
        lowered = ("posted", "owed") if settlement.received else ("payable",)
        moved = dict.fromkeys(lowered, -settlement.amount)
        try:
            self._engine.transact(
                [
                    Put(Table.LEDGER, *place, asdict(settlement), Absent()),
                    Add(Table.LEDGER, *balance_place(settlement.peer), moved),
                ]
            )
        except TransactionCancelled as cancelled:
            standing = cancelled.current[0] or {}
            same = ("amount", "received")
            if any(standing.get(name) != getattr(settlement, name) for name in same):
                raise KeyUsedDifferently("this idempotency key was used before") from None
            return False
        return True

    def of(self, peer_id: str) -> Iterator[Settlement]:
        for row in read_all(self._engine, Query(Table.LEDGER, f"settlement#{peer_id}")):
            yield Settlement(**row.item)


def _place(peer_id: str, key: str) -> tuple[str, str]:
    return f"settlement#{peer_id}", sha256(key.encode()).hexdigest()
