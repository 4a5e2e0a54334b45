"""Subscriptions that this agent has opened at other relays, and their deliveries.

A delivery is fulfilled only if its subscription was stored here before its REQ was sent. The
messages of a subscription wait in its inbox until the client takes them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from farthing.btp_nips.positions import NUMBER_MAX, Position
from farthing.store.table import EXPIRES, Delete, Engine, Put, Query, Table, read_all

_NOTE: Final = "note"
_INBOX: Final = "m#"
_WAITS_SECONDS: Final = 24 * 3600
# Messages without a position are sorted behind every position.
_BEHIND: Final = 2 * NUMBER_MAX + 2


class Outgoing(NamedTuple):
    relay: str  # its public key
    id: str
    # Whether events are stored here, for our subscribers; else they wait in the inbox.
    is_upstream: bool = False
    filters: str = ""  # as JSON: only matching events may be stored


class Waiting(NamedTuple):
    """A message in an inbox: the data of its packet."""

    sk: str
    data: bytes


class OutgoingSubscriptions:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def note(self, outgoing: Outgoing, until: int) -> None:
        """Expect deliveries until a day after `until`."""
        item: dict[str, Any] = {
            "upstream": outgoing.is_upstream,
            "filters": outgoing.filters,
            EXPIRES: until + _WAITS_SECONDS,
        }
        self._engine.write(Put(Table.LEDGER, _pk(outgoing.relay, outgoing.id), _NOTE, item))

    def get(self, relay: str, subscription_id: str) -> Outgoing | None:
        item = self._engine.get(Table.LEDGER, _pk(relay, subscription_id), _NOTE)
        if item is None:
            return None
        return Outgoing(relay, subscription_id, item["upstream"], item["filters"])

    def share(self, relay: str, fingerprint: str, until: int) -> None:
        """Record that a subscription with these filters is open at a relay, until a second."""
        item = {"until": until, EXPIRES: until}
        self._engine.write(Put(Table.LEDGER, f"upstream#{relay}", fingerprint, item))

    def is_open(self, relay: str, fingerprint: str, until: int) -> bool:
        """Whether a subscription with equal filters is open at a relay, for long enough."""
        item = self._engine.get(Table.LEDGER, f"upstream#{relay}", fingerprint)
        return item is not None and item["until"] >= until

    def forget(self, relay: str, subscription_id: str) -> None:
        pk = _pk(relay, subscription_id)
        rows = read_all(self._engine, Query(Table.LEDGER, pk))
        self._engine.write_batch([Delete(Table.LEDGER, pk, row.sk) for row in rows])

    def arrival(
        self,
        outgoing: Outgoing,
        data: bytes,
        digest: str,
        position: Position | None,
        now_ms: int,
    ) -> Put:
        """The write that stores a message. A message that comes again is stored once."""
        place = _BEHIND if position is None else position.to_int()
        when = now_ms if position is None else 0
        # The key has the type too: a NOTICE comes before the CLOSED of the same millisecond.
        sk = f"{_INBOX}{place:016d}#{when:015d}#{data[1]}#{digest}"
        item = {"data": data, EXPIRES: now_ms // 1000 + _WAITS_SECONDS}
        return Put(Table.LEDGER, _pk(outgoing.relay, outgoing.id), sk, item)

    def inbox(self, relay: str, subscription_id: str) -> Iterator[Waiting]:
        """The messages that wait, in the order of their positions."""
        query = Query(Table.LEDGER, _pk(relay, subscription_id), low=_INBOX, high=f"{_INBOX}~")
        for row in read_all(self._engine, query):
            yield Waiting(row.sk, bytes(row.item["data"]))

    def take(self, relay: str, subscription_id: str, taken: Sequence[Waiting]) -> None:
        """Remove messages from the inbox."""
        pk = _pk(relay, subscription_id)
        self._engine.write_batch([Delete(Table.LEDGER, pk, each.sk) for each in taken])


def _pk(relay: str, subscription_id: str) -> str:
    return f"outgoing#{relay}#{subscription_id}"
