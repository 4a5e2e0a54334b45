"""How far each live subscription to the numbered log is. One caller at a time holds a cursor and
serves its subscription."""

from typing import NamedTuple

from farthing.store.subscriptions import Subscription, cursor_key
from farthing.store.table import EXPIRES, Add, ConditionFailed, Engine, Equals, Put, Table


class Lease(NamedTuple):
    """The time for which one caller serves a subscription alone."""

    now_ms: int
    until_ms: int


class Cursor(NamedTuple):
    """How far a live changes subscription is, in the hands of the one who serves it."""

    number: int  # everything up to here has been sent
    until_ms: int  # the holder's lease, by which it is known
    told: int = 0  # how often others have come in vain


class Cursors:
    def __init__(self, engine: Engine, seconds: int) -> None:
        self._engine = engine
        self._life = seconds

    def begin(self, subscription: Subscription, number: int, lease: Lease) -> Cursor:
        """Note how far a live changes subscription is, with ourselves as the one who serves it."""
        item = {"at": number, "until": lease.until_ms, EXPIRES: lease.now_ms // 1000 + self._life}
        self._engine.write(Put(Table.SESSIONS, *cursor_key(subscription), item))
        return Cursor(number, lease.until_ms)

    def take(self, subscription: Subscription, lease: Lease) -> Cursor | None:
        """Become the one who serves the subscription. None if it is closed, or if another serves
        it, who is then told to look again when it is through."""
        key = cursor_key(subscription)
        while (standing := self._engine.get(Table.SESSIONS, *key)) is not None:
            free = standing["until"] < lease.now_ms
            amounts = {} if free else {"told": 1}
            assign = {"until": lease.until_ms} if free else {}
            # Nothing is made anew where the cursor is gone, and nobody told who has just left.
            unchanged = Equals("until", standing["until"])
            try:
                item = self._engine.write(Add(Table.SESSIONS, *key, amounts, assign, unchanged))
            except ConditionFailed:
                continue
            assert item is not None
            return Cursor(item["at"], lease.until_ms, item.get("told", 0)) if free else None
        return None

    def leave(self, subscription: Subscription, cursor: Cursor) -> bool:
        """Stop serving; whether somebody has come meanwhile, and one has to look again."""
        key, assign = cursor_key(subscription), {"at": cursor.number, "until": 0}
        mine = Equals("until", cursor.until_ms)
        try:
            left = self._engine.write(Add(Table.SESSIONS, *key, {}, assign, mine))
        except ConditionFailed:
            return False  # closed, or we took too long and another has taken over
        return left is not None and left.get("told", 0) != cursor.told
