"""Subscriptions of sockets: which are open, and what they want.

A subscription's own item says whether it is open; entries in the index and in the connection's list
are hints that are checked against it. Messages of one connection may be handled out of order, so
each carries the order in which it was sent, and the later one wins.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import orjson

from farthing.nostr.filters import parse_filter
from farthing.store.spaces import AETHER, NOSTR, E, Storable, Wanted
from farthing.store.subscription_index import Index
from farthing.store.table import (
    EXPIRES,
    ConditionFailed,
    Delete,
    Engine,
    Item,
    Key,
    LessThan,
    Put,
    Query,
    Table,
    read_all,
)

if TYPE_CHECKING:
    from farthing.aether.events import Event as AetherEvent

LISTED = "s#"
_SUBSCRIPTION = "s"
# A CLOSE is remembered for as long as a REQ sent before it can still be on its way.
_CLOSE_SECONDS = 60

F_contra = TypeVar("F_contra", bound=Storable, contravariant=True)


class LiveFilter(Wanted[F_contra], Protocol[F_contra]):
    """A filter that can be written down."""

    def as_dict(self) -> dict[str, object]: ...


Filters = tuple[LiveFilter[Any], ...]


@dataclass(frozen=True, eq=False)
class Feed(Generic[E]):
    """One kind of subscription that a socket may have."""

    name: str  # a subscription's item bears it
    index: Index[E]
    # A filter of this kind, from what its `as_dict` gave.
    parse: Callable[[Any], LiveFilter[E]]
    # Whether each subscription has a cursor, an item beside its own.
    has_cursor: bool = False


# REQ: events as they are stored.
EVENTS = Feed("i", Index(Table.SESSIONS, "i", NOSTR), partial(parse_filter, may_search=True))
# CHANGES, live: entries of the numbered log.
CHANGES = Feed("l", Index(Table.SESSIONS, "l", NOSTR, listed=True), parse_filter, has_cursor=True)


def _aether_filter(value: object) -> "LiveFilter[AetherEvent]":
    # Loaded with the first such subscription: its libraries take their time.
    from farthing.aether.filters import parse_filter

    return parse_filter(value)


# Aether events as they are stored, whatever protocol they were asked for in.
AETHER_EVENTS = Feed("x", Index(Table.SESSIONS, "i", AETHER), _aether_filter)

# Every feed of sockets: when a connection goes, what all its subscriptions have left goes too.
FEEDS: tuple[Feed[Any], ...] = (EVENTS, CHANGES, AETHER_EVENTS)


@dataclass(frozen=True)
class Subscription:
    connection_id: str
    id: str
    order: int
    filters: Sequence[LiveFilter[Any]]
    feed: Feed[Any] = EVENTS
    # How its frames are written, where the feed has several ways.
    form: str = ""

    @property
    def place(self) -> str:
        """How hints name it. The order is part of it, so that tidying up after an older request
        of the same id leaves this one's hints alone."""
        return f"{self.connection_id}#{self.order}#{self.id}"

    @cached_property
    def _hints(self) -> list[Key]:
        return self.feed.index.hints(self.filters, self.place)

    @property
    def entries(self) -> list[Key]:
        """(pk, sk) of each hint that leads to this subscription."""
        listed = listing(self.connection_id), f"{LISTED}{self.order}#{self.id}"
        return [listed, *self._hints]

    @cached_property
    def text(self) -> str:
        """The filters as they are kept."""
        return orjson.dumps([filter.as_dict() for filter in self.filters]).decode()

    @property
    def size(self) -> "Size":
        return Size(len(self._hints), len(self.text.encode()))

    @property
    def traces(self) -> list[Key]:
        """(pk, sk) of whatever goes when the subscription does, beside its own item."""
        return [*self.entries, *([cursor_key(self)] if self.feed.has_cursor else [])]


def request_order(time_ms: int) -> int:
    return 2 * time_ms


def close_order(time_ms: int) -> int:
    """A CLOSE beats a REQ of the same millisecond: nothing may outlive its CLOSE."""
    return 2 * time_ms + 1


def listing(connection_id: str) -> str:
    """The partition of a connection: its own item, and the lists of what it has open."""
    return f"c#{connection_id}"


def _key(connection_id: str, subscription_id: str) -> Key:
    return f"s#{connection_id}#{subscription_id}", _SUBSCRIPTION


def cursor_key(subscription: Subscription) -> Key:
    """Where a live feed notes how far the subscription is."""
    pk, _ = _key(subscription.connection_id, subscription.id)
    return pk, f"cursor#{subscription.order}"


class Size(NamedTuple):
    """What it takes to keep a subscription: the values that it is found by, and the bytes of its
    filters."""

    values: int
    bytes: int


class Subscriptions:
    def __init__(
        self, engine: Engine, seconds: int, parsed_bytes: int, *, in_order: bool = False
    ) -> None:
        self._engine = engine
        self._life = seconds
        self._parsed = ParsedFilters(parsed_bytes)
        self._in_order = in_order  # no message of a connection overtakes another

    def subscribe(self, subscription: Subscription, now: int) -> int:
        """Open or replace a subscription, unless a later message has already settled it.

        The order of the message that is now in force: the subscription's own, or a later one.
        """
        expires = now + self._life
        size = subscription.size
        hint = {"o": subscription.order, "v": size.values, "b": size.bytes, EXPIRES: expires}
        hints = [Put(Table.SESSIONS, pk, sk, hint) for pk, sk in subscription.entries]
        item = {
            "o": subscription.order,
            "f": subscription.text,
            "d": subscription.feed.name,
            EXPIRES: expires,
        }
        if subscription.form:
            item["m"] = subscription.form
        settled: bool
        _, (settled, old) = self._engine.together(
            lambda: self._engine.write_batch(hints, deferred=True),
            lambda: self._settle(subscription, item),
        )
        stale = self._read(subscription.connection_id, subscription.id, old)
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
            pk, sk = _key(connection_id, subscription_id)
            settled, old = True, self._engine.write(Delete(Table.SESSIONS, pk, sk))
        else:
            settled, old = self._settle(closing, {"o": order, EXPIRES: now + _CLOSE_SECONDS})
        stale = self._read(connection_id, subscription_id, old)
        if settled and stale is not None:
            self._forget_traces(stale, keep=None)
        return settled

    def _settle(self, subscription: Subscription, item: Item) -> tuple[bool, Item | None]:
        """Put the item unless a later one stands there; and what stood or stands there."""
        pk, sk = _key(subscription.connection_id, subscription.id)
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

    def ids(self, connection_id: str) -> set[str]:
        return set(self.sizes(connection_id))

    def sizes(self, connection_id: str) -> dict[str, Size]:
        """The id of each that is open, and what it takes to keep."""
        query = Query(Table.SESSIONS, listing(connection_id), low=LISTED)
        rows = read_all(self._engine, query)
        return {
            _listed_id(row.sk): Size(row.item.get("v", 0), row.item.get("b", 0)) for row in rows
        }

    def keys_of(self, connection_id: str, listed: Iterable[str]) -> set[Key]:
        """The keys of all that a connection's subscriptions have left, by their entries in its
        list."""
        keys = {each: _key(connection_id, each) for each in map(_listed_id, listed)}
        items = self._engine.get_many(Table.SESSIONS, keys.values())
        found = set(keys.values())
        for subscription_id, key in keys.items():
            open_one = self._read(connection_id, subscription_id, items.get(key))
            if open_one is not None:
                found.update(open_one.traces)
        return found

    def _read(
        self, connection_id: str, subscription_id: str, item: Item | None
    ) -> Subscription | None:
        """The open subscription that an item describes; None for a closed one."""
        if item is None or "f" not in item:
            return None
        feed = _feed(item["d"])
        filters = self._parsed.of(feed, item["f"])
        form = item.get("m", "")
        return Subscription(connection_id, subscription_id, item["o"], filters, feed, form)

    def is_open(self, subscription: Subscription) -> bool:
        pk, sk = _key(subscription.connection_id, subscription.id)
        item = self._engine.get(Table.SESSIONS, pk, sk)
        return item is not None and "f" in item and item["o"] == subscription.order

    def open_at(self, places: Collection[str]) -> dict[str, Subscription]:
        """The open subscriptions that hints name; see `Index.interested`."""
        named = {place: _named(place) for place in sorted(places)}
        keys = {each: _key(*each) for each in (named[place][:2] for place in named)}
        items = self._engine.get_many(Table.SESSIONS, keys.values())
        read = {each: self._read(*each, items.get(key)) for each, key in keys.items()}
        found = {}
        for place, (connection_id, subscription_id, order) in named.items():
            subscription = read[connection_id, subscription_id]
            if subscription is not None and subscription.order == order:
                found[place] = subscription
        return found


def _listed_id(sk: str) -> str:
    return sk.split("#", 2)[2]


def _named(place: str) -> tuple[str, str, int]:
    connection_id, order, subscription_id = place.split("#", 2)
    return connection_id, subscription_id, int(order)


def _feed(name: str) -> Feed[Any]:
    return next(feed for feed in FEEDS if feed.name == name)


class ParsedFilters:
    """Filters that were parsed lately, by their text: they come back with every event that they
    may match. Bounded by the bytes of the texts."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, str], Filters] = OrderedDict()
        self._mutex = threading.Lock()

    def of(self, feed: Feed[Any], text: str) -> Filters:
        key = (feed.name, text)
        with self._mutex:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        parsed = tuple(feed.parse(value) for value in orjson.loads(text))
        with self._mutex:
            if key not in self._kept and len(text) <= self._most:
                self._kept[key] = parsed
                self._bytes += len(text)
            while self._bytes > self._most:
                (_, oldest), _ = self._kept.popitem(last=False)
                self._bytes -= len(oldest)
        return parsed

    def __len__(self) -> int:
        return len(self._kept)
