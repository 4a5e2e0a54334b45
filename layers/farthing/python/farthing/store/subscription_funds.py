"""The funds from which a paid subscription's credit is refilled, and to which the rest returns.

An owner with a key has a purse. For an owner without a key, or with a frozen purse, this module
stores a rest, from which only the owner's subscriptions draw.
"""

from dataclasses import dataclass
from secrets import token_hex
from typing import Final

from farthing.btp_nips.identity import Owner, owner_pubkey
from farthing.store.purses import Movement, MovementKind, Purse, Purses, Way
from farthing.store.table import Add, AtLeast, Engine, Table, TransactWrite

_REST: Final = "rest"


@dataclass(frozen=True, slots=True)
class Funds:
    """An owner's recently read funds."""

    owner: Owner
    rest: int = 0
    purse: Purse | None = None

    @property
    def drawable(self) -> int:
        return self.rest + (0 if self.purse is None else self.purse.drawable)


class SubscriptionFunds:
    def __init__(self, engine: Engine, purses: Purses) -> None:
        self._engine = engine
        self._purses = purses

    def of(self, owner: Owner) -> Funds:
        pubkey = owner_pubkey(owner)
        purse = None if pubkey is None else self._purses.get(pubkey)
        return Funds(owner, self.rest(owner), purse)

    def rest(self, owner: Owner) -> int:
        item = self._engine.get(Table.LEDGER, *_rest_key(owner)) or {}
        left: int = item.get("left", 0)
        return left

    def move(
        self, funds: Funds, subscription_id: str, *, drawn: int, returned: int, time_ms: int
    ) -> list[TransactWrite]:
        """The writes that draw `drawn` and return `returned`, as one movement of the difference."""
        if drawn >= returned:
            return self._draw(funds, subscription_id, drawn - returned, time_ms)
        return self._fill(funds, subscription_id, returned - drawn, time_ms)

    def _draw(
        self, funds: Funds, subscription_id: str, amount: int, time_ms: int
    ) -> list[TransactWrite]:
        """The writes that draw an amount. They fail if too little is left."""
        from_rest = min(funds.rest, amount)
        writes: list[TransactWrite] = []
        if from_rest:
            enough = AtLeast("left", from_rest)
            moved = {"left": -from_rest}
            writes.append(Add(Table.LEDGER, *_rest_key(funds.owner), moved, condition=enough))
        if amount > from_rest:
            assert funds.purse is not None
            movement = _movement(MovementKind.DRAWN, subscription_id, amount - from_rest, time_ms)
            writes += self._purses.draw(funds.purse.key, movement).writes
        return writes

    def _fill(
        self, funds: Funds, subscription_id: str, amount: int, time_ms: int
    ) -> list[TransactWrite]:
        """The writes that add an amount. They fail if the purse was frozen meanwhile."""
        if not amount:
            return []
        if funds.purse is None or funds.purse.is_frozen:
            return [Add(Table.LEDGER, *_rest_key(funds.owner), {"left": amount})]
        movement = _movement(MovementKind.FILLED, subscription_id, amount, time_ms)
        return self._purses.fill(funds.purse, movement)


def _movement(kind: MovementKind, subscription_id: str, amount: int, time_ms: int) -> Movement:
    detail = {"subscription": subscription_id}
    return Movement(kind, Way.SUBSCRIPTION, amount, time_ms, token_hex(8), detail)


def _rest_key(owner: Owner) -> tuple[str, str]:
    return f"paid-of#{owner}", _REST
