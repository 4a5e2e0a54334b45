"""Connections and their subscriptions, and the index that finds subscriptions for a new event.

A subscription's own item says whether it is open; entries in the index and in the connection's list
are hints that are checked against it. Messages of one connection may be handled out of order, so
each carries the order in which it was sent, and the later one wins.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import orjson

from farthing.nostr.events import Event
from farthing.nostr.filters import Filter, parse_filter
from farthing.store.postings import short_value
from farthing.store.table import (
    EXPIRES,
    Add,
    ConditionFailed,
    Delete,
    Engine,
    Equals,
    Item,
    LessThan,
    Put,
    Query,
    Table,
    read_all,
)

_CONNECTION = "c"
_LISTED = "s#"
_SUBSCRIPTION = "s"
_ANY_LIVE = "live-changes"  # lists every live changes subscription
_PROVEN = "as#"
# A CLOSE is remembered for as long as a REQ sent before it can still be on its way.
_CLOSE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Connection:
    id: str
    challenge: str
    host: str
    pubkeys: frozenset[str]  # authenticated as
    messages: int  # so far, this one included
    base_messages: int  # at the start of the current rate window
    base_time: int


class Feed(StrEnum):
    """What a subscription is served from, and the prefix of its keys in the index."""

    EVENTS = "i"  # REQ: events as they are stored
    CHANGES = "l"  # CHANGES, live: entries of the numbered log


class Place(NamedTuple):
    """A subscription as the index names it."""

    connection_id: str
    subscription_id: str
    order: int


class Lease(NamedTuple):
    """The time for which one caller serves a subscription alone."""

    now_ms: int
    until_ms: int


class Cursor(NamedTuple):
    """How far a live changes subscription is, in the hands of the one who serves it."""

    number: int  # everything up to here has been sent
    until_ms: int  # the holder's lease, by which it is known
    told: int = 0  # how often others have come in vain


@dataclass(frozen=True, slots=True)
class Subscription:
    connection_id: str
    id: str
    order: int
    filters: Sequence[Filter]
    feed: Feed = Feed.EVENTS

    @property
    def entries(self) -> list[tuple[str, str]]:
        """(pk, sk) of each hint that leads to this subscription."""
        sk = f"{self.connection_id}#{self.order}#{self.id}"
        keys = dict.fromkeys(
            key for filter in self.filters for key in index_keys(filter, self.feed)
        )
        # Listed by its order too: whoever tidies up after an older one leaves this one's alone.
        listed = f"{_LISTED}{self.order}#{self.id}"
        if self.feed is Feed.CHANGES:
            keys[_ANY_LIVE] = None
        return [(_listing(self.connection_id), listed), *((key, sk) for key in keys)]

    @property
    def value_count(self) -> int:
        """By how many values the index finds it: what it takes to keep."""
        return sum(len(index_keys(filter, self.feed)) for filter in self.filters)

    @property
    def traces(self) -> list[tuple[str, str]]:
        """(pk, sk) of whatever goes when the subscription does, beside its own item."""
        return [*self.entries, *([_cursor_key(self)] if self.feed is Feed.CHANGES else [])]


def request_order(time_ms: int) -> int:
    return 2 * time_ms


def close_order(time_ms: int) -> int:
    """A CLOSE beats a REQ of the same millisecond: nothing may outlive its CLOSE."""
    return 2 * time_ms + 1


def index_keys(filter: Filter, feed: Feed = Feed.EVENTS) -> list[str]:
    """Where a live filter is indexed: under each value of its one most selective field."""
    if filter.ids is not None:
        return [f"{feed}#id#{event_id}" for event_id in sorted(filter.ids)]
    choices = [[_tag_key(feed, letter, value) for value in sorted(values)]
               for letter, values in filter.tags.items()]  # fmt: skip
    if filter.authors is not None:
        choices.append([f"{feed}#p#{author}" for author in sorted(filter.authors)])
    if choices:
        return min(choices, key=len)
    if filter.kinds is not None:
        return [f"{feed}#k#{kind}" for kind in sorted(filter.kinds)]
    return [f"{feed}#*"]


def event_keys(event: Event, feed: Feed = Feed.EVENTS) -> list[str]:
    """The index keys that an event carries: a filter that matches it is under one of them."""
    tags = dict.fromkeys(_tag_key(feed, letter, value) for letter, value in event.indexed_tags())
    own = [f"id#{event.id}", f"p#{event.pubkey}", f"k#{event.kind}", "*"]
    return [*(f"{feed}#{key}" for key in own), *tags]


def _tag_key(feed: Feed, letter: str, value: str) -> str:
    return f"{feed}#t#{letter}#{short_value(value)}"


def _listing(connection_id: str) -> str:
    return f"c#{connection_id}"


def _subscription_key(connection_id: str, subscription_id: str) -> tuple[str, str]:
    return f"s#{connection_id}#{subscription_id}", _SUBSCRIPTION


def _cursor_key(subscription: Subscription) -> tuple[str, str]:
    pk, _ = _subscription_key(subscription.connection_id, subscription.id)
    return pk, f"cursor#{subscription.order}"


class Sessions:
    def __init__(self, engine: Engine, connection_seconds: int, *, in_order: bool = False) -> None:
        self._engine = engine
        self._life = connection_seconds
        self._in_order = in_order  # no message of a connection overtakes another

    def connect(self, connection_id: str, challenge: str, host: str, now: int) -> None:
        item = {"challenge": challenge, "host": host, "t": now, EXPIRES: now + self._life}
        self._engine.write(Put(Table.SESSIONS, _listing(connection_id), _CONNECTION, item))

    def visit(self, connection_id: str, now: int) -> Connection:
        """Count a message, and read what is known of the connection in the same request."""
        item = self._engine.write(
            Add(Table.SESSIONS, _listing(connection_id), _CONNECTION, {"n": 1},
                {EXPIRES: now + self._life})
        )  # fmt: skip
        assert item is not None
        return _connection(connection_id, item)

    def rebase(self, connection_id: str, messages: int, now: int) -> None:
        """Begin another rate window, as if so many messages had been sent before it."""
        assign = {"m": messages, "t": now}
        self._engine.write(Add(Table.SESSIONS, _listing(connection_id), _CONNECTION, {}, assign))

    def get(self, connection_id: str) -> Connection | None:
        item = self._engine.get(Table.SESSIONS, _listing(connection_id), _CONNECTION)
        return None if item is None else _connection(connection_id, item)

    def authenticate(self, connection: Connection, pubkey: str) -> None:
        # An attribute for each key: two that come side by side do not undo each other.
        proven = {_PROVEN + pubkey: True}
        self._engine.write(Add(Table.SESSIONS, _listing(connection.id), _CONNECTION, {}, proven))

    def subscribe(self, subscription: Subscription, now: int) -> int:
        """Open or replace a subscription, unless a later message has already settled it.

        The order of the message that is now in force: the subscription's own, or a later one.
        """
        expires = now + self._life
        hint = {"o": subscription.order, "v": subscription.value_count, EXPIRES: expires}
        hints = [Put(Table.SESSIONS, pk, sk, hint) for pk, sk in subscription.entries]
        item = {
            "o": subscription.order,
            "f": orjson.dumps([filter.as_dict() for filter in subscription.filters]).decode(),
            "d": subscription.feed.value,
            EXPIRES: expires,
        }
        settled: bool
        _, (settled, old) = self._engine.together(
            lambda: self._engine.write_batch(hints, deferred=True),
            lambda: self._settle(subscription, item),
        )
        stale = _subscription(subscription.connection_id, subscription.id, old)
        if not settled:
            self._forget_traces(subscription, keep=stale)
            return int(old["o"]) if old is not None else subscription.order + 1
        if stale is not None:
            self._forget_traces(stale, keep=subscription)
        return subscription.order

    def unsubscribe(self, connection_id: str, subscription_id: str, order: int, now: int) -> bool:
        """Close a subscription, if one is open. False if a later message has already settled it."""
        closing = Subscription(connection_id, subscription_id, order, ())
        if self._in_order:
            pk, sk = _subscription_key(connection_id, subscription_id)
            settled, old = True, self._engine.write(Delete(Table.SESSIONS, pk, sk))
        else:
            settled, old = self._settle(closing, {"o": order, EXPIRES: now + _CLOSE_SECONDS})
        stale = _subscription(connection_id, subscription_id, old)
        if settled and stale is not None:
            self._forget_traces(stale, keep=None)
        return settled

    def _settle(self, subscription: Subscription, item: Item) -> tuple[bool, Item | None]:
        """Put the item unless a later one stands there; and what stood or stands there."""
        pk, sk = _subscription_key(subscription.connection_id, subscription.id)
        condition = LessThan("o", subscription.order + 1)
        try:
            return True, self._engine.write(Put(Table.SESSIONS, pk, sk, item, condition))
        except ConditionFailed as failure:
            return False, failure.current

    def _forget_traces(self, stale: Subscription, keep: Subscription | None) -> None:
        kept = set(keep.traces) if keep is not None else set()
        deletes = [Delete(Table.SESSIONS, pk, sk) for pk, sk in stale.traces
                   if (pk, sk) not in kept]  # fmt: skip
        if deletes:
            self._engine.write_batch(deletes)

    def subscription_ids(self, connection_id: str) -> set[str]:
        return set(self.open_subscriptions(connection_id))

    def open_subscriptions(self, connection_id: str) -> dict[str, int]:
        """The id of each, and by how many values it is found."""
        query = Query(Table.SESSIONS, _listing(connection_id), low=_LISTED)
        rows = read_all(self._engine, query)
        return {_listed_id(row.sk): row.item.get("v", 0) for row in rows}

    def count_packet(self, peer_id: str, now: int) -> int:
        """Count a packet of a peer. How many came in this minute, this one included."""
        minute = now // 60
        assign = {EXPIRES: 60 * (minute + 2)}
        item = self._engine.write(
            Add(Table.SESSIONS, f"packets#{peer_id}", str(minute), {"n": 1}, assign)
        )
        assert item is not None
        number: int = item["n"]
        return number

    def disconnect(self, connection_id: str) -> None:
        """Forget a connection, all its subscriptions, and whatever else its partition holds."""
        pk = _listing(connection_id)
        held = [row.sk for row in read_all(self._engine, Query(Table.SESSIONS, pk))]
        listed = [_listed_id(sk) for sk in held if sk.startswith(_LISTED)]
        keys = {each: _subscription_key(connection_id, each) for each in listed}
        items = self._engine.get_many(Table.SESSIONS, keys.values())
        deletes = {(pk, sk) for sk in (_CONNECTION, *held)}
        for subscription_id, key in keys.items():
            deletes.add(key)
            open_one = _subscription(connection_id, subscription_id, items.get(key))
            if open_one is not None:
                deletes.update(open_one.traces)
        self._engine.write_batch([Delete(Table.SESSIONS, pk, sk) for pk, sk in sorted(deletes)])

    def any_live_changes(self) -> bool:
        """Whether anybody follows the changes feed live."""
        # Page after page: the first may hold nothing but what has expired.
        query = Query(Table.SESSIONS, _ANY_LIVE, limit=10)
        return any(True for _ in read_all(self._engine, query))

    def is_open(self, subscription: Subscription) -> bool:
        pk, sk = _subscription_key(subscription.connection_id, subscription.id)
        item = self._engine.get(Table.SESSIONS, pk, sk)
        return item is not None and "f" in item and item["o"] == subscription.order

    def begin_cursor(self, subscription: Subscription, number: int, lease: Lease) -> Cursor:
        """Note how far a live changes subscription is, with ourselves as the one who serves it."""
        item = {"at": number, "until": lease.until_ms, EXPIRES: lease.now_ms // 1000 + self._life}
        self._engine.write(Put(Table.SESSIONS, *_cursor_key(subscription), item))
        return Cursor(number, lease.until_ms)

    def take_cursor(self, subscription: Subscription, lease: Lease) -> Cursor | None:
        """Become the one who serves the subscription. None if it is closed, or if another serves
        it, who is then told to look again when it is through."""
        key = _cursor_key(subscription)
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

    def leave_cursor(self, subscription: Subscription, cursor: Cursor) -> bool:
        """Stop serving; whether somebody has come meanwhile, and one has to look again."""
        key, assign = _cursor_key(subscription), {"at": cursor.number, "until": 0}
        mine = Equals("until", cursor.until_ms)
        try:
            left = self._engine.write(Add(Table.SESSIONS, *key, {}, assign, mine))
        except ConditionFailed:
            return False  # closed, or we took too long and another has taken over
        return left is not None and left.get("told", 0) != cursor.told

    def interested(
        self, events: Sequence[Event], feed: Feed = Feed.EVENTS
    ) -> Iterator[tuple[Event, Subscription]]:
        """Each event with each open subscription that one of its filters matches."""
        return self.matching(self.candidates(events, feed))

    def candidates(
        self, events: Sequence[Event], feed: Feed = Feed.EVENTS
    ) -> list[tuple[Event, list[Place]]]:
        """Each event with the subscriptions that the index names for it, each once. Whether they
        are open and match is for `matching` to say."""
        hints = self._hints(key for event in events for key in event_keys(event, feed))
        return [
            (event, list(dict.fromkeys(
                place for key in event_keys(event, feed) for place in hints[key]
            )))
            for event in events
        ]  # fmt: skip

    def matching(
        self, candidates: Sequence[tuple[Event, Sequence[Place]]]
    ) -> Iterator[tuple[Event, Subscription]]:
        """Each event with those of its candidates that are open and match it."""
        wanted = {
            (place.connection_id, place.subscription_id)
            for _, places in candidates
            for place in places
        }
        if not wanted:
            return
        items = self._engine.get_many(
            Table.SESSIONS, [_subscription_key(*key) for key in sorted(wanted)]
        )
        subscriptions = {
            key: _subscription(*key, items.get(_subscription_key(*key))) for key in wanted
        }
        for event, places in candidates:
            for connection_id, subscription_id, order in places:
                subscription = subscriptions[connection_id, subscription_id]
                if subscription is None or subscription.order != order:
                    continue
                if any(filter.matches(event) for filter in subscription.filters):
                    yield event, subscription

    def _hints(self, keys: Iterable[str]) -> dict[str, list[Place]]:
        """The place of every entry under each key."""
        distinct = list(dict.fromkeys(keys))
        queries = [Query(Table.SESSIONS, key) for key in distinct]
        hints = {}
        for key, query, page in zip(
            distinct, queries, self._engine.query_many(queries), strict=True
        ):
            rows = list(page.rows)
            if page.after is not None:
                rest = Query(query.table, query.pk, after=page.after)
                rows.extend(read_all(self._engine, rest))
            hints[key] = [_place(row.sk) for row in rows]
        return hints


def _listed_id(sk: str) -> str:
    return sk.split("#", 2)[2]


def _place(sk: str) -> Place:
    connection_id, order, subscription_id = sk.split("#", 2)
    return Place(connection_id, subscription_id, int(order))


def _connection(connection_id: str, item: Item) -> Connection:
    return Connection(
        connection_id,
        item.get("challenge", ""),
        item.get("host", ""),
        frozenset(name.removeprefix(_PROVEN) for name in item if name.startswith(_PROVEN)),
        item.get("n", 0),
        item.get("m", 0),
        item.get("t", 0),
    )


def _subscription(
    connection_id: str, subscription_id: str, item: Item | None
) -> Subscription | None:
    """The open subscription that an item describes; None for a closed one."""
    if item is None or "f" not in item:
        return None
    text = item["f"]
    # Small filters come back with every event that they match; large ones would fill the memory.
    filters = _remembered_filters(text) if len(text) < 4096 else _filters(text)
    return Subscription(connection_id, subscription_id, item["o"], filters, Feed(item["d"]))


def _filters(text: str) -> tuple[Filter, ...]:
    return tuple(parse_filter(value) for value in orjson.loads(text))


_remembered_filters = lru_cache(maxsize=2048)(_filters)
