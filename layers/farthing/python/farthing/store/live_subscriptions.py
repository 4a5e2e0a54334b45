"""Subscriptions of sockets in the memory of the one process that has all connections: no record is
written for a REQ or a CLOSE, and fan-out finds subscriptions without reading any."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from farthing.store.subscription_index import Index
from farthing.store.subscriptions import (
    Feed,
    Filters,
    LiveFilter,
    ParsedFilters,
    Size,
    Subscription,
    Subscriptions,
    cursor_key,
)
from farthing.store.table import Delete, Engine, Key, Table


class _Filters(Sequence[LiveFilter[Any]]):
    """Filters that are parsed when an event may match them, because the memory of parsed filters is
    limited."""

    __slots__ = ("_feed", "_parsed", "_text")

    def __init__(self, parsed: ParsedFilters, feed: Feed[Any], text: str) -> None:
        self._parsed, self._feed, self._text = parsed, feed, text

    def _all(self) -> Filters:
        return self._parsed.of(self._feed, self._text)

    def __iter__(self) -> Iterator[LiveFilter[Any]]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]


class _Open(NamedTuple):
    subscription: Subscription
    place: str
    keys: Sequence[str]  # of its hints
    size: Size


class LiveSubscriptions(Subscriptions):
    """Messages of each connection must be handled in the order in which they were sent."""

    def __init__(
        self, engine: Engine, parsed_bytes: int, stream_end: Callable[[], int] = lambda: 0
    ) -> None:
        super().__init__(engine, 0, parsed_bytes, stream_end=stream_end)
        self._mutex = threading.Lock()
        self._open: dict[str, dict[str, _Open]] = {}  # by connection and id
        self._at: dict[str, Subscription] = {}  # by place
        self._hints: dict[str, dict[str, None]] = {}  # key -> places

    def subscribe(self, subscription: Subscription, now: int) -> int:
        feed, text, place = subscription.feed, subscription.text, subscription.place
        kept = Subscription(
            subscription.connection_id, subscription.id, subscription.order,
            _Filters(self._parsed, feed, text), feed, subscription.form, text,
            self._end_before(subscription),
        )  # fmt: skip
        keys = subscription.index_keys
        with self._mutex:
            mine = self._open.setdefault(subscription.connection_id, {})
            old = mine.get(subscription.id)
            if old is not None and old.subscription.order > subscription.order:
                return old.subscription.order
            mine[subscription.id] = _Open(kept, place, keys, subscription.size)
            self._at[place] = kept
            for key in keys:
                self._hints.setdefault(key, {})[place] = None
            if old is not None and old.place != place:
                self._forget(old)
        self._delete_cursors(old)
        return subscription.order

    def unsubscribe(self, connection_id: str, subscription_id: str, order: int, now: int) -> bool:
        with self._mutex:
            mine = self._open.get(connection_id, {})
            old = mine.pop(subscription_id, None)
            if old is not None:
                self._forget(old)
                if not mine:
                    del self._open[connection_id]
        self._delete_cursors(old)
        return True

    def _forget(self, old: _Open) -> None:
        self._at.pop(old.place, None)
        for key in old.keys:
            places = self._hints[key]
            del places[old.place]
            if not places:
                del self._hints[key]

    def _delete_cursors(self, old: _Open | None) -> None:
        if old is not None and old.subscription.feed.has_cursor:
            self._engine.write(Delete(Table.SESSIONS, *cursor_key(old.subscription)))

    def sizes(self, connection_id: str) -> dict[str, Size]:
        with self._mutex:
            mine = self._open.get(connection_id, {})
            return {each: open_one.size for each, open_one in mine.items()}

    def end_all(self, connection_id: str, listed: Iterable[str]) -> set[Key]:
        with self._mutex:
            mine = self._open.pop(connection_id, {})
            for open_one in mine.values():
                self._forget(open_one)
        return {
            cursor_key(each.subscription)
            for each in mine.values()
            if each.subscription.feed.has_cursor
        }

    def change_form(self, connection_id: str, form: str, *, but: str) -> None:
        with self._mutex:
            mine = self._open.get(connection_id, {})
            for subscription_id, open_one in mine.items():
                if open_one.subscription.form in ("", but):
                    continue
                changed = replace(open_one.subscription, form=form)
                mine[subscription_id] = open_one._replace(subscription=changed)
                self._at[open_one.place] = changed

    def is_open(self, subscription: Subscription) -> bool:
        return subscription.place in self._at

    def open_at(self, places: Collection[str]) -> dict[str, Subscription]:
        found = ((place, self._at.get(place)) for place in places)
        return {place: subscription for place, subscription in found if subscription is not None}

    def is_unused(self, index: Index[Any]) -> bool:
        return index.listed and index.any_key not in self._hints

    def places(self, index: Index[Any], keys: Iterable[str]) -> Mapping[str, Sequence[str]]:
        # Copied in one step, because other threads change the hints meanwhile.
        found = ((key, self._hints.get(key)) for key in keys)
        return {key: list(places) for key, places in found if places is not None}
