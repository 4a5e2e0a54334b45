"""Credit that trust gives followed agents: the limits of peers without a limit of their own.

No limit depends on another. So a rebuild replaces them one by one: a reader in between sees old and
new limits, each of which was valid at some time.
"""

from collections.abc import Mapping

from farthing.store.table import Delete, Engine, Put, Query, Table, read_all

# One partition: there is one limit for each followed agent, and only a rebuild changes them.
_CREDIT = "credit"
_BATCH = 500


class CreditLimits:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, pubkey: str) -> int | None:
        """The limit of one agent, or None if trust gives no limit."""
        item = self._engine.get(Table.ROUTES, _CREDIT, pubkey)
        return None if item is None else item["limit"]

    def all(self) -> dict[str, int]:
        """Every agent's limit, by public key."""
        query = Query(Table.ROUTES, _CREDIT, limit=_BATCH)
        return {row.sk: row.item["limit"] for row in read_all(self._engine, query)}

    def replace(self, limits: Mapping[str, int]) -> None:
        """Replace all limits by these."""
        gone = self.all().keys() - limits.keys()
        # Old limits are deleted first: after a crash halfway, no agent has more credit than the old
        # or the new limits give.
        writes: list[Put | Delete] = [
            *(Delete(Table.ROUTES, _CREDIT, pubkey) for pubkey in sorted(gone)),
            *(Put(Table.ROUTES, _CREDIT, pubkey, {"limit": limits[pubkey]}) for pubkey in limits),
        ]
        for start in range(0, len(writes), _BATCH):
            self._engine.write_batch(writes[start : start + _BATCH])
