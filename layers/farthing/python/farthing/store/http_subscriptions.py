"""Subscriptions by HTTP: their filters, and their beginning in the log.

Each is one item under its id, which is a secret. It lasts as long as a client reads it. On one
machine it survives a restart of the process, so a client can continue its stream.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from farthing.store.table import (
    EXPIRES,
    Absent,
    Add,
    ConditionFailed,
    Delete,
    Engine,
    Equals,
    Key,
    Put,
    Table,
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


class HttpSubscriptions:
    def __init__(self, engine: Engine, seconds: int) -> None:
        self._engine = engine
        self._life = seconds

    def open(self, subscription: HttpSubscription, now: int) -> bool:
        """Store a subscription. False if its id is taken."""
        item = {
            "f": orjson.dumps(subscription.filters).decode(),
            "n": subscription.start,
            EXPIRES: now + self._life,
        }
        try:
            self._engine.write(Put(Table.LEDGER, *_key(subscription.id), item, Absent()))
        except ConditionFailed:
            return False
        return True

    def read(self, subscription_id: str, now: int) -> HttpSubscription | None:
        """Read the subscription, and prolong its life."""
        item = self._engine.get(Table.LEDGER, *_key(subscription_id))
        if item is None:
            return None
        unrenewed = min(self._life // _UNRENEWED_PART, _MOST_UNRENEWED_SECONDS)
        if item[EXPIRES] < now + self._life - unrenewed:
            assign = {EXPIRES: now + self._life}
            still_there = Equals("n", item["n"])
            try:
                self._engine.write(
                    Add(Table.LEDGER, *_key(subscription_id), {}, assign, still_there)
                )
            except ConditionFailed:
                return None
        return HttpSubscription(subscription_id, orjson.loads(item["f"]), item["n"])

    def close(self, subscription_id: str) -> bool:
        """Forget a subscription. False if there was none."""
        return self._engine.write(Delete(Table.LEDGER, *_key(subscription_id))) is not None


def _key(subscription_id: str) -> Key:
    return f"stream#{subscription_id}", _SUBSCRIPTION
