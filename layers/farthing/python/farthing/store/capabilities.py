"""Capability tokens: the tokens that the owner has issued, their uses, and the revoked tokens.

A use is counted in the transaction that stores the event. Revoking a token sets its counter far
above every maximum, so one condition refuses used-up and revoked tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from farthing.store.payment import Payment
from farthing.store.table import Add, Engine, Item, Key, LessThan, Put, Query, Table, read_all

# Begins the reference of an event that a capability has paid for.
REFERENCE: Final = "capability#"

_ISSUED: Final = "capabilities"
_USES: Final = "uses"
_REVOKED: Final = 10**15  # more uses than any token can reach

# A token's id, and its limit of uses; None means no limit.
Use = tuple[str, int | None]


class Issued(NamedTuple):
    """A token that the owner has issued here."""

    id: str
    token: str  # JSON
    time: int
    uses: int
    revoked: int | None  # time of the revocation, in seconds


class Capabilities:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def payment(self, uses: Sequence[Use]) -> Payment:
        """The payment for an event: one use of each token of a chain. The last token is the
        author's own."""
        writes = [
            Add(
                Table.LEDGER,
                *_key(token),
                {"count": 1, "gate": 1},
                {},
                LessThan("gate", _most(most)),
            )
            for token, most in uses
        ]
        return Payment(writes, f"{REFERENCE}{uses[-1][0]}")

    def refusal(self, uses: Sequence[Use]) -> str | None:
        """The reason why a chain can no longer be used, or None."""
        items = self._engine.get_many(Table.LEDGER, [_key(token) for token, _ in uses])
        for token, most in uses:
            item = items.get(_key(token), {})
            if "revoked" in item:
                return "a token is revoked"
            if item.get("gate", 0) >= _most(most):
                return "a token is used up"
        return None

    def uses(self, token: str) -> int:
        return self._count(self._engine.get(Table.LEDGER, *_key(token)))

    def add(self, token: str, json: str, now: int) -> None:
        """Store an issued token. A token that is stored already keeps its uses."""
        self._engine.write(Put(Table.LEDGER, _ISSUED, token, {"token": json, "time": now}))

    def revoke(self, token: str, now: int) -> None:
        """Revoke a token, and with it every token that was derived from it."""
        revoked = {"gate": _REVOKED, "revoked": now}
        self._engine.write(Add(Table.LEDGER, *_key(token), {}, revoked))

    def issued(self) -> Iterator[Issued]:
        rows = list(read_all(self._engine, Query(Table.LEDGER, _ISSUED)))
        items = self._engine.get_many(Table.LEDGER, [_key(row.sk) for row in rows])
        for row in rows:
            item = items.get(_key(row.sk))
            revoked = None if item is None else item.get("revoked")
            yield Issued(row.sk, row.item["token"], row.item["time"], self._count(item), revoked)

    @staticmethod
    def _count(item: Item | None) -> int:
        return 0 if item is None else int(item.get("count", 0))


def _key(token: str) -> Key:
    return f"capability#{token}", _USES


def _most(most: int | None) -> int:
    return _REVOKED if most is None else min(most, _REVOKED)
