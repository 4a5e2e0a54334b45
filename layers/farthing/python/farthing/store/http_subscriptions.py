"""Subscriptions by HTTP: what their streams are about, and where in the log they begin.

One item each, found by its id alone, which is a secret. It lasts while somebody reads. It outlives
the process on one machine: a stream that lost the server comes back to it.
"""

from dataclasses import dataclass
from typing import Any

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

_SUBSCRIPTION = "s"


@dataclass(frozen=True, slots=True)
class HttpSubscription:
    id: str
    filters: list[dict[str, Any]]
    start: int  # the end of the log when it was opened


class HttpSubscriptions:
    def __init__(self, engine: Engine, seconds: int) -> None:
        self._engine = engine
        self._life = seconds

    def open(self, subscription: HttpSubscription, now: int) -> bool:
        """Keep a subscription. False where its id is taken."""
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
        """The subscription, which lives on because somebody reads it."""
        item = self._engine.get(Table.LEDGER, *_key(subscription_id))
        if item is None:
            return None
        if item[EXPIRES] < now + self._life // 2:  # seldom: a write costs more than the read
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
