"""Settlements: payments outside of Interledger, in either direction, each counted once."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import NamedTuple

from farthing.store.ledger import balance_place
from farthing.store.table import (
    Absent,
    Add,
    Condition,
    ConditionFailed,
    Engine,
    Equals,
    Put,
    Query,
    Table,
    TransactionCancelled,
    TransactWrite,
    read_all,
)

_OPEN = "open"


class KeyUsedDifferently(Exception):
    """The idempotency key belongs to another settlement."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """A payment outside of Interledger. `received` lowers the peer's debt to us; otherwise we have
    paid, and our debt is lower."""

    peer: str
    key: str
    amount: int
    received: bool
    time: int


class AskedSettlement(NamedTuple):
    """The last settlement that we asked an engine for; `is_open` until the engine has accepted
    it."""

    settlement: Settlement
    is_open: bool


class Settlements:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def receive(self, settlement: Settlement) -> bool:
        """Count a peer's payment; False if it was counted before."""
        moved = dict.fromkeys(("posted", "owed"), -settlement.amount)
        try:
            self._engine.transact(_counted(settlement, moved))
        except TransactionCancelled as cancelled:
            standing = cancelled.current[0] or {}
            if standing.get("amount") != settlement.amount or not standing.get("received"):
                raise KeyUsedDifferently("this idempotency key was used before") from None
            return False
        return True

    # A settlement is stored before the engine is asked for it. So every request for it has the same
    # amount and key, even if we ask again and the debt grows, and it is paid once.

    def last_asked(self, peer_id: str) -> AskedSettlement | None:
        """Read this before the balance: a settlement that is finished in between is then no longer
        part of the balance."""
        item = self._engine.get(Table.LEDGER, *_asked(peer_id))
        if item is None:
            return None
        fields = dict(item)
        is_open = fields.pop(_OPEN)
        return AskedSettlement(Settlement(**fields), is_open)

    def begin(self, settlement: Settlement, after: AskedSettlement | None) -> bool:
        """Store the settlement that we will ask for; False if another was begun meanwhile."""
        unmoved = Absent() if after is None else Equals("key", after.settlement.key)
        try:
            self._engine.write(_asked_for(settlement, unmoved, is_open=True))
        except ConditionFailed:
            return False
        return True

    def finish(self, settlement: Settlement) -> bool:
        """Count a settlement that the engine has accepted; False if it was counted before."""
        writes = _counted(settlement, {"payable": -settlement.amount})
        its_own = Equals("key", settlement.key)
        try:
            self._engine.transact([*writes, _asked_for(settlement, its_own, is_open=False)])
        except TransactionCancelled:
            return False
        return True

    def of(self, peer_id: str) -> Iterator[Settlement]:
        for row in read_all(self._engine, Query(Table.LEDGER, f"settlement#{peer_id}")):
            yield Settlement(**row.item)


def _place(peer_id: str, key: str) -> tuple[str, str]:
    return f"settlement#{peer_id}", sha256(key.encode()).hexdigest()


def _counted(settlement: Settlement, moved: dict[str, int]) -> list[TransactWrite]:
    place = _place(settlement.peer, settlement.key)
    return [
        Put(Table.LEDGER, *place, asdict(settlement), Absent()),
        Add(Table.LEDGER, *balance_place(settlement.peer), moved),
    ]


def _asked(peer_id: str) -> tuple[str, str]:
    return f"settling#{peer_id}", "asked"


def _asked_for(settlement: Settlement, condition: Condition, *, is_open: bool) -> Put:
    item = {**asdict(settlement), _OPEN: is_open}
    return Put(Table.LEDGER, *_asked(settlement.peer), item, condition)
