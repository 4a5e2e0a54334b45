"""The position of each live subscription in the numbered log. One caller at a time holds a cursor
and serves its subscription."""

from typing import NamedTuple

from farthing.store.subscriptions import Subscription, cursor_key
from farthing.store.table import EXPIRES, Add, ConditionFailed, Engine, Equals, Put, Table


class Lease(NamedTuple):
    """The time for which one caller serves a subscription alone."""

    now_ms: int
    until_ms: int


class Cursor(NamedTuple):
    """The position of a live changes subscription, for the caller that holds the cursor."""

    number: int  # all entries up to this number were sent
    until_ms: int  # the end of the holder's lease, which identifies the holder
    told: int = 0  # how many other callers have noted that there is more to send


class Cursors:
    def __init__(self, engine: Engine, seconds: int) -> None:
        self._engine = engine
        self._life = seconds

    def begin(self, subscription: Subscription, number: int, lease: Lease) -> Cursor:
        """Make the cursor of a new subscription, held by the caller."""
        item = {"at": number, "until": lease.until_ms, EXPIRES: lease.now_ms // 1000 + self._life}
        self._engine.write(Put(Table.SESSIONS, *cursor_key(subscription), item))
        return Cursor(number, lease.until_ms)

    def take(self, subscription: Subscription, lease: Lease) -> Cursor | None:
        """Take hold of the cursor. None if the subscription is closed, or if another caller holds
        the cursor; that caller is then told that there is more to send."""
        key = cursor_key(subscription)
        while (standing := self._engine.get(Table.SESSIONS, *key)) is not None:
            free = standing["until"] < lease.now_ms
            amounts = {} if free else {"told": 1}
            assign = {"until": lease.until_ms} if free else {}
            # The condition prevents making a deleted cursor again, and marking a cursor that was
            # just released.
            unchanged = Equals("until", standing["until"])
            try:
                item = self._engine.write(Add(Table.SESSIONS, *key, amounts, assign, unchanged))
            except ConditionFailed:
                continue
            assert item is not None
            return Cursor(item["at"], lease.until_ms, item.get("told", 0)) if free else None
        return None

    def leave(self, subscription: Subscription, cursor: Cursor) -> bool:
        """Release the cursor. True if another caller has marked that there is more to send."""
        key, assign = cursor_key(subscription), {"at": cursor.number, "until": 0}
        mine = Equals("until", cursor.until_ms)
        try:
            left = self._engine.write(Add(Table.SESSIONS, *key, {}, assign, mine))
        except ConditionFailed:
            return False  # closed, or our lease has ended and another caller has it
        return left is not None and left.get("told", 0) != cursor.told
