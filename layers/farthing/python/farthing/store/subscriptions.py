"""Subscriptions of sockets: their state and their filters.

A subscription's own item says whether it is open; entries in the index and in the connection's list
are hints that are checked against it. Messages of one connection may be handled out of order, so
each carries the order in which it was sent, and the later one wins.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import orjson

from farthing.nostr.filters import parse_filter
from farthing.store.spaces import AETHER, NOSTR, E, Storable, Wanted
from farthing.store.subscription_index import Index, StoredHints
from farthing.store.table import (
    EXPIRES,
    Add,
    ConditionFailed,
    Delete,
    Engine,
    Equals,
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
    """A filter that can be stored."""

    def as_dict(self) -> dict[str, object]: ...


Filters = tuple[LiveFilter[Any], ...]


@dataclass(frozen=True, eq=False)
class Feed(Generic[E]):
    """One kind of subscription on a socket."""

    name: str  # stored in a subscription's item
    index: Index[E]
    # Makes a filter of this kind from the result of its `as_dict`.
    parse: Callable[[Any], LiveFilter[E]]
    # Whether each subscription has a cursor, an item beside its own.
    has_cursor: bool = False


# REQ: events when they are stored.
EVENTS = Feed("i", Index(Table.SESSIONS, "i", NOSTR), partial(parse_filter, may_search=True))
# CHANGES, live: entries of the numbered log.
CHANGES = Feed("l", Index(Table.SESSIONS, "l", NOSTR, listed=True), parse_filter, has_cursor=True)


def _aether_filter(value: object) -> "LiveFilter[AetherEvent]":
    # Imported with the first such subscription, because the import is slow.
    from farthing.aether.filters import parse_filter

    return parse_filter(value)


# Aether events when they are stored, for Aether and Nostr clients.
AETHER_EVENTS = Feed("x", Index(Table.SESSIONS, "i", AETHER), _aether_filter)

# Every feed of sockets. When a connection ends, the items of all its subscriptions are deleted.
FEEDS: tuple[Feed[Any], ...] = (EVENTS, CHANGES, AETHER_EVENTS)


@dataclass(frozen=True)
class Subscription:
    connection_id: str
    id: str
    order: int
    filters: Sequence[LiveFilter[Any]]
    feed: Feed[Any] = EVENTS
    # The form of its frames, if the feed has several.
    form: str = ""
    # The stored text of the filters, if it is known.
    written: str = ""
    # The last change of the stream when the subscription was opened; 0 if it is not known. Events
    # up to that change are among the stored events, and must not be sent again as new ones.
    after: int = 0

    @property
    def place(self) -> str:
        """The subscription's name in hints. The order is part of it, so that removing the hints of
        an older request with the same id does not remove these."""
        return f"{self.connection_id}#{self.order}#{self.id}"

    @cached_property
    def index_keys(self) -> list[str]:
        """The keys of the subscription in its index."""
        return self.feed.index.keys(self.filters)

    @property
    def entries(self) -> list[Key]:
        """(pk, sk) of each hint that leads to this subscription."""
        listed = listing(self.connection_id), f"{LISTED}{self.order}#{self.id}"
        place = self.place
        return [listed, *((key, place) for key in self.index_keys)]

    @property
    def text(self) -> str:
        """The stored text of the filters."""
        return self.written or self._text

    @cached_property
    def _text(self) -> str:
        return text_of(self.filters)

    @property
    def size(self) -> "Size":
        return Size(len(self.index_keys), len(self.text.encode()))

    @property
    def traces(self) -> list[Key]:
        """(pk, sk) of every item that is deleted with the subscription, beside its own item."""
        return [*self.entries, *([cursor_key(self)] if self.feed.has_cursor else [])]


def text_of(filters: Sequence[LiveFilter[Any]]) -> str:
    """The stored text of filters: equal filters have the same text."""
    return orjson.dumps([filter.as_dict() for filter in filters]).decode()


def request_order(time_ms: int) -> int:
    return 2 * time_ms


def close_order(time_ms: int) -> int:
    """The order of a CLOSE, above that of a REQ of the same millisecond, so that no subscription
    stays open after its CLOSE."""
    return 2 * time_ms + 1


def listing(connection_id: str) -> str:
    """The partition of a connection: its own item, and the lists of its open subscriptions."""
    return f"c#{connection_id}"


def _key(connection_id: str, subscription_id: str) -> Key:
    return f"s#{connection_id}#{subscription_id}", _SUBSCRIPTION


def cursor_key(subscription: Subscription) -> Key:
    """The key of the item with a live subscription's position."""
    pk, _ = _key(subscription.connection_id, subscription.id)
    return pk, f"cursor#{subscription.order}"


class Size(NamedTuple):
    """The storage of a subscription: the number of its index values, and the bytes of its
    filters."""

    values: int
    bytes: int


class Subscriptions(StoredHints):
    def __init__(
        self,
        engine: Engine,
        seconds: int,
        parsed_bytes: int,
        *,
        stream_end: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(engine)
        self._life = seconds
        self._parsed = ParsedFilters(parsed_bytes)
        self._stream_end = stream_end

    def subscribe(self, subscription: Subscription, now: int) -> int:
        """Open or replace a subscription, unless a later message has already settled it.

        Returns the order of the message that is now valid: the subscription's own, or a later one.
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
        after = self._end_before(subscription)
        if after:
            item["q"] = after
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
        settled, old = self._settle(closing, {"o": order, EXPIRES: now + _CLOSE_SECONDS})
        stale = self._read(connection_id, subscription_id, old)
        if settled and stale is not None:
            self._forget_traces(stale, keep=None)
        return settled

    def _end_before(self, subscription: Subscription) -> int:
        """The last change of the stream, read before stored events are. A search uses an index that
        is updated later."""
        return 0 if any(map(_searches, subscription.filters)) else self._stream_end()

    def _settle(self, subscription: Subscription, item: Item) -> tuple[bool, Item | None]:
        """Put the item unless a later one is stored. Returns whether it was put, and the old or the
        later item."""
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
        """The id and the size of each open subscription."""
        query = Query(Table.SESSIONS, listing(connection_id), low=LISTED)
        rows = read_all(self._engine, query)
        return {
            _listed_id(row.sk): Size(row.item.get("v", 0), row.item.get("b", 0)) for row in rows
        }

    def end_all(self, connection_id: str, listed: Iterable[str]) -> set[Key]:
        """End a connection's subscriptions. Returns the keys of their items, which the caller
        deletes; `listed` are their entries in the connection's list."""
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
        form, after = item.get("m", ""), item.get("q", 0)
        return Subscription(
            connection_id, subscription_id, item["o"], filters, feed, form, after=after
        )

    def change_form(self, connection_id: str, form: str, *, but: str) -> None:
        """From now on, the frames of a connection's subscriptions have this form. Those that have
        no form, or the form `but`, stay as they are."""
        keys = {each: _key(connection_id, each) for each in self.ids(connection_id)}
        items = self._engine.get_many(Table.SESSIONS, keys.values())
        for key, item in items.items():
            if "f" not in item or item.get("m", but) == but:
                continue
            change = Add(Table.SESSIONS, *key, {}, {"m": form}, Equals("o", item["o"]))
            with suppress(ConditionFailed):  # closed or replaced meanwhile
                self._engine.write(change)

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


def _searches(filter: LiveFilter[Any]) -> bool:
    return getattr(filter, "search", None) is not None


def _listed_id(sk: str) -> str:
    return sk.split("#", 2)[2]


def _named(place: str) -> tuple[str, str, int]:
    connection_id, order, subscription_id = place.split("#", 2)
    return connection_id, subscription_id, int(order)


def _feed(name: str) -> Feed[Any]:
    return next(feed for feed in FEEDS if feed.name == name)


# Estimated bytes of memory for parsed filters: for the whole, for each byte of their text, and for
# each of their values. Short values need many times their text.
_PARSED_BYTES = 1000
_PARSED_BYTES_A_BYTE = 4
_PARSED_BYTES_A_VALUE = 80


def parsed_bytes(text: str) -> int:
    """The estimated memory of parsed filters with this text."""
    values = text.count(",") * _PARSED_BYTES_A_VALUE
    return _PARSED_BYTES + _PARSED_BYTES_A_BYTE * len(text) + values


class ParsedFilters:
    """A cache of parsed filters by their text: the same filters are needed for every event that
    they may match. Their memory is limited."""

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
        size = parsed_bytes(text)
        with self._mutex:
            if key not in self._kept and size <= self._most:
                self._kept[key] = parsed
                self._bytes += size
            while self._bytes > self._most:
                (_, oldest), _ = self._kept.popitem(last=False)
                self._bytes -= parsed_bytes(oldest)
        return parsed

    def __len__(self) -> int:
        return len(self._kept)
