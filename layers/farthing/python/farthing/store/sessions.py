"""Connections and their subscriptions, and the index that finds subscriptions for a new event.

A subscription's own item says whether it is open; entries in the index and in the connection's list
are hints that are checked against it. Messages of one connection may be handled out of order, so
each carries the order in which it was sent, and the later one wins.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
# A CLOSE is remembered for as long as a REQ sent before it can still be on its way.
_CLOSE_SECONDS = 60
_REBASE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Connection:
    id: str
    challenge: str
    host: str
    pubkeys: frozenset[str]  # authenticated as
    messages: int  # so far, this one included
    base_messages: int  # at the start of the current rate window
    base_time: int


@dataclass(frozen=True, slots=True)
class Subscription:
    connection_id: str
    id: str
    order: int
    filters: Sequence[Filter]

    @property
    def entries(self) -> list[tuple[str, str]]:
        """(pk, sk) of each hint that leads to this subscription."""
        sk = f"{self.connection_id}#{self.order}#{self.id}"
        keys = dict.fromkeys(key for filter in self.filters for key in index_keys(filter))
        return [(_listing(self.connection_id), _LISTED + self.id), *((key, sk) for key in keys)]


def request_order(time_ms: int) -> int:
    return 2 * time_ms


def close_order(time_ms: int) -> int:
    """A CLOSE beats a REQ of the same millisecond: nothing may outlive its CLOSE."""
    return 2 * time_ms + 1


def index_keys(filter: Filter) -> list[str]:
    """Where a live filter is indexed: under each value of its one most selective field."""
    if filter.ids is not None:
        return [f"i#id#{event_id}" for event_id in sorted(filter.ids)]
    choices = [[_tag_key(letter, value) for value in sorted(values)]
               for letter, values in filter.tags.items()]  # fmt: skip
    if filter.authors is not None:
        choices.append([f"i#p#{author}" for author in sorted(filter.authors)])
    if choices:
        return min(choices, key=len)
    if filter.kinds is not None:
        return [f"i#k#{kind}" for kind in sorted(filter.kinds)]
    return ["i#*"]


def event_keys(event: Event) -> list[str]:
    """The index keys that an event carries: a filter that matches it is under one of them."""
    tags = dict.fromkeys(_tag_key(letter, value) for letter, value in event.indexed_tags())
    return [f"i#id#{event.id}", f"i#p#{event.pubkey}", f"i#k#{event.kind}", "i#*", *tags]


def _tag_key(letter: str, value: str) -> str:
    return f"i#t#{letter}#{short_value(value)}"


def _listing(connection_id: str) -> str:
    return f"c#{connection_id}"


def _subscription_key(connection_id: str, subscription_id: str) -> tuple[str, str]:
    return f"s#{connection_id}#{subscription_id}", _SUBSCRIPTION


class Sessions:
    def __init__(self, engine: Engine, connection_seconds: int) -> None:
        self._engine = engine
        self._life = connection_seconds

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
        if now - item.get("t", 0) >= _REBASE_SECONDS:
            self._rebase(connection_id, item["n"], now)
        return _connection(connection_id, item)

    def _rebase(self, connection_id: str, messages: int, now: int) -> None:
        assign = {"m": messages, "t": now}
        self._engine.write(Add(Table.SESSIONS, _listing(connection_id), _CONNECTION, {}, assign))

    def get(self, connection_id: str) -> Connection | None:
        item = self._engine.get(Table.SESSIONS, _listing(connection_id), _CONNECTION)
        return None if item is None else _connection(connection_id, item)

    def authenticate(self, connection: Connection, pubkey: str) -> None:
        pubkeys = sorted(connection.pubkeys | {pubkey})
        self._engine.write(
            Add(Table.SESSIONS, _listing(connection.id), _CONNECTION, {}, {"pubkeys": pubkeys})
        )

    def subscribe(self, subscription: Subscription, now: int) -> bool:
        """Open or replace a subscription; False if a later message has already settled it."""
        expires = now + self._life
        hints = [
            Put(Table.SESSIONS, pk, sk, {"o": subscription.order, EXPIRES: expires})
            for pk, sk in subscription.entries
        ]
        item = {
            "o": subscription.order,
            "f": orjson.dumps([filter.as_dict() for filter in subscription.filters]).decode(),
            EXPIRES: expires,
        }
        settled: bool
        _, (settled, old) = self._engine.together(
            lambda: self._engine.write_batch(hints, deferred=True),
            lambda: self._settle(subscription, item),
        )
        stale = _subscription(subscription.connection_id, subscription.id, old)
        if not settled:
            self._forget_entries(subscription, keep=stale)
        elif stale is not None:
            self._forget_entries(stale, keep=subscription)
        return settled

    def unsubscribe(self, connection_id: str, subscription_id: str, order: int, now: int) -> None:
        closing = Subscription(connection_id, subscription_id, order, ())
        settled, old = self._settle(closing, {"o": order, EXPIRES: now + _CLOSE_SECONDS})
        stale = _subscription(connection_id, subscription_id, old)
        if settled and stale is not None:
            self._forget_entries(stale, keep=None)

    def _settle(self, subscription: Subscription, item: Item) -> tuple[bool, Item | None]:
        """Put the item unless a later one stands there; and what stood or stands there."""
        pk, sk = _subscription_key(subscription.connection_id, subscription.id)
        condition = LessThan("o", subscription.order + 1)
        try:
            return True, self._engine.write(Put(Table.SESSIONS, pk, sk, item, condition))
        except ConditionFailed as failure:
            return False, failure.current

    def _forget_entries(self, stale: Subscription, keep: Subscription | None) -> None:
        kept = set(keep.entries) if keep is not None else set()
        deletes = [Delete(Table.SESSIONS, pk, sk) for pk, sk in stale.entries
                   if (pk, sk) not in kept]  # fmt: skip
        if deletes:
            self._engine.write_batch(deletes)

    def subscription_ids(self, connection_id: str) -> list[str]:
        query = Query(Table.SESSIONS, _listing(connection_id), low=_LISTED)
        return [row.sk.removeprefix(_LISTED) for row in read_all(self._engine, query)]

    def disconnect(self, connection_id: str) -> None:
        """Forget a connection and all its subscriptions."""
        ids = self.subscription_ids(connection_id)
        keys = [_subscription_key(connection_id, subscription_id) for subscription_id in ids]
        items = self._engine.get_many(Table.SESSIONS, keys)
        deletes = {(_listing(connection_id), _CONNECTION)}
        for subscription_id, key in zip(ids, keys, strict=True):
            deletes |= {key, (_listing(connection_id), _LISTED + subscription_id)}
            open_one = _subscription(connection_id, subscription_id, items.get(key))
            if open_one is not None:
                deletes.update(open_one.entries)
        self._engine.write_batch([Delete(Table.SESSIONS, pk, sk) for pk, sk in sorted(deletes)])

    def interested(self, events: Sequence[Event]) -> Iterator[tuple[Event, Subscription]]:
        """Each event with each open subscription that one of its filters matches."""
        hints = self._hints(key for event in events for key in event_keys(event))
        wanted = {place for places in hints.values() for place, _ in places}
        if not wanted:
            return
        items = self._engine.get_many(
            Table.SESSIONS, [_subscription_key(*place) for place in sorted(wanted)]
        )
        subscriptions = {
            place: _subscription(*place, items.get(_subscription_key(*place))) for place in wanted
        }
        for event in events:
            candidates = dict.fromkeys(hint for key in event_keys(event) for hint in hints[key])
            for place, order in candidates:
                subscription = subscriptions[place]
                if subscription is None or subscription.order != order:
                    continue
                if any(filter.matches(event) for filter in subscription.filters):
                    yield event, subscription

    def _hints(self, keys: Iterable[str]) -> dict[str, list[tuple[tuple[str, str], int]]]:
        """((connection id, subscription id), order) of every entry under each key."""
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
            hints[key] = [_hint(row.sk) for row in rows]
        return hints


def _hint(sk: str) -> tuple[tuple[str, str], int]:
    connection_id, order, subscription_id = sk.split("#", 2)
    return (connection_id, subscription_id), int(order)


def _connection(connection_id: str, item: Item) -> Connection:
    return Connection(
        connection_id,
        item.get("challenge", ""),
        item.get("host", ""),
        frozenset(item.get("pubkeys", ())),
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
    return Subscription(connection_id, subscription_id, item["o"], filters)


def _filters(text: str) -> tuple[Filter, ...]:
    return tuple(parse_filter(value) for value in orjson.loads(text))


_remembered_filters = lru_cache(maxsize=2048)(_filters)
