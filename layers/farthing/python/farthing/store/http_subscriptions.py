"""Subscriptions by HTTP: their filters, and their beginning in the log.

Each is one item under its id, which is a secret. It lasts as long as a client reads it. On one
machine it survives a restart of the process, so a client can continue its stream. A second item
counts it for the address that has opened it.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson

from farthing.store.table import (
    EXPIRES,
    Add,
    Delete,
    Engine,
    Equals,
    Item,
    Key,
    LessThan,
    Put,
    Query,
    Table,
    TransactionCancelled,
    is_expired,
    read_all,
)

_SUBSCRIPTION: Final = "s"
# A subscription is prolonged when this much of its life is over, because a write costs more than a
# read: a tenth, and at most a minute.
_UNRENEWED_PART: Final = 10
_MOST_UNRENEWED_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class HttpSubscription:
    id: str
    filters: list[dict[str, Any]]
    start: int  # the end of the log when the subscription was opened
    opener: str  # the address that has opened it


class HttpSubscriptions:
    def __init__(self, engine: Engine, seconds: int) -> None:
        self._engine = engine
        self._life = seconds

    def open(self, subscription: HttpSubscription, now: int) -> bool:
        """Store a subscription. False if its id is taken."""
        until = {EXPIRES: now + self._life}
        item = {
            "f": orjson.dumps(subscription.filters).decode(),
            "n": subscription.start,
            "o": subscription.opener,
            **until,
        }
        # The store deletes a forgotten subscription late.
        is_free = LessThan(EXPIRES, now + 1)
        opened = _opened(subscription.opener), subscription.id
        try:
            self._engine.transact(
                [
                    Put(Table.LEDGER, *_key(subscription.id), item, is_free),
                    Put(Table.LEDGER, *opened, until),
                ]
            )
        except TransactionCancelled as cancelled:
            if cancelled.failed[0]:
                return False
            raise
        return True

    def count(self, opener: str, most: int) -> int:
        """The number of open subscriptions of an address, or `most` if there are more."""
        rows = read_all(self._engine, Query(Table.LEDGER, _opened(opener), limit=max(1, most)))
        return sum(1 for _ in islice(rows, most))

    def read(self, subscription_id: str, now: int) -> HttpSubscription | None:
        """Read the subscription, and prolong its life."""
        item = self._engine.get(Table.LEDGER, *_key(subscription_id))
        if item is None:
            return None
        filters = orjson.loads(item["f"])
        found = HttpSubscription(subscription_id, filters, item["n"], _opener_in(item))
        unrenewed = min(self._life // _UNRENEWED_PART, _MOST_UNRENEWED_SECONDS)
        if item[EXPIRES] < now + self._life - unrenewed and not self._prolong(found, now):
            return None
        return found

    def _prolong(self, subscription: HttpSubscription, now: int) -> bool:
        """False if the subscription was closed meanwhile."""
        until = {EXPIRES: now + self._life}
        still_there = Equals("n", subscription.start)
        opened = _opened(subscription.opener), subscription.id
        try:
            self._engine.transact(
                [
                    Add(Table.LEDGER, *_key(subscription.id), {}, until, still_there),
                    Put(Table.LEDGER, *opened, until),
                ]
            )
        except TransactionCancelled as cancelled:
            if cancelled.failed[0]:
                return False
            raise
        return True

    def close(self, subscription_id: str, now: int) -> bool:
        """Forget a subscription. False if there was none."""
        item = self._engine.write(Delete(Table.LEDGER, *_key(subscription_id)))
        if item is None:
            return False
        self._engine.write(Delete(Table.LEDGER, _opened(_opener_in(item)), subscription_id))
        return not is_expired(item, now)


def _key(subscription_id: str) -> Key:
    return f"stream#{subscription_id}", _SUBSCRIPTION


def _opener_in(item: Item) -> str:
    """Subscriptions from before openers were counted have none."""
    opener: str = item.get("o", "")
    return opener


def _opened(opener: str) -> str:
    return f"streams#{opener}"
