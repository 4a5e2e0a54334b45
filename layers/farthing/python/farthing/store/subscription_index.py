"""The subscription index. It finds the subscriptions that may match a new event by the event's
keys, without reading every subscription.

Each filter is indexed under every value of its one most selective field. An entry is a hint: it
names a place, and the store of the subscriptions decides which of them is open there. Then the
filters are checked in full. The index does not depend on connections or other destinations. It is
stored in the table that its owner names: in the sessions, or in a table that survives the process.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from farthing.store.postings import short_value
from farthing.store.spaces import E, Space, Wanted
from farthing.store.table import Engine, Key, Query, Table, read_all

_ANY = "any"


class HasFilters(Protocol):
    """A subscription of any kind, with its filters."""

    @property
    def filters(self) -> Sequence[Wanted[Any]]: ...


S = TypeVar("S", bound=HasFilters)


class Hints(Protocol):
    """Where the hints of subscriptions are found."""

    def is_unused(self, index: "Index[Any]") -> bool:
        """Whether the index has no subscriptions. Only a listed index can tell this."""
        ...

    def places(self, index: "Index[Any]", keys: Iterable[str]) -> Mapping[str, Sequence[str]]:
        """The places that the hints under these keys name. Keys without hints may be left out."""
        ...


class StoredHints:
    """Hints in a table of the store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def is_unused(self, index: "Index[Any]") -> bool:
        if not index.listed:
            return False
        # All pages are read: the first may have only expired items.
        query = Query(index.table, index.any_key, limit=10)
        return not any(True for _ in read_all(self._engine, query))

    def places(self, index: "Index[Any]", keys: Iterable[str]) -> Mapping[str, Sequence[str]]:
        distinct = list(dict.fromkeys(keys))
        queries = [Query(index.table, key) for key in distinct]
        places = {}
        for key, page in zip(distinct, self._engine.query_many(queries), strict=True):
            rows = list(page.rows)
            if page.after is not None:
                rows.extend(read_all(self._engine, Query(index.table, key, after=page.after)))
            places[key] = [row.sk for row in rows]
        return places


class Index(Generic[E]):
    """The hints of one kind of subscription to the events of one space.

    `mark` begins their partition keys: no two kinds in a table share one. If the index is `listed`,
    all its subscriptions are also in one list, and one request shows whether there are any. That is
    for kinds that are rare: the list is one partition.
    """

    def __init__(self, table: Table, mark: str, space: Space[E], *, listed: bool = False) -> None:
        self.table = table
        self.space = space
        self.listed = listed
        self._mark = f"{space.prefix}{mark}"

    def hints(self, filters: Sequence[Wanted[E]], place: str) -> list[Key]:
        """The keys of a subscription's hints. The owner of the index writes them before the
        subscription and deletes them after it."""
        return [(key, place) for key in self.keys(filters)]

    def keys(self, filters: Sequence[Wanted[E]]) -> list[str]:
        """The keys of a subscription, each once."""
        keys = [key for filter in filters for key in self.filter_keys(filter)]
        if self.listed:
            keys.append(self.any_key)
        return list(dict.fromkeys(keys))

    def filter_keys(self, filter: Wanted[E]) -> list[str]:
        """The keys of a filter: one for each value of its most selective field."""
        if filter.ids is not None:
            return [self._key("id", event_id) for event_id in sorted(filter.ids)]
        choices = [[self._tag_key(key, value) for value in sorted(values)]
                   for key, values in filter.tags.items()]  # fmt: skip
        if filter.authors is not None:
            choices.append([self._author_key(author) for author in sorted(filter.authors)])
        if choices:
            return min(choices, key=len)
        if filter.kinds is not None:
            return [self._key("k", str(kind)) for kind in sorted(filter.kinds)]
        return [self._key("*")]

    def event_keys(self, event: E) -> list[str]:
        """The keys of an event: every filter that matches the event is under one of them."""
        tags = dict.fromkeys(self._tag_key(key, value) for key, value in event.indexed_tags())
        own = [
            self._key("id", event.id),
            self._author_key(event.pubkey),
            self._key("k", str(event.kind)),
            self._key("*"),
        ]
        return [*own, *tags]

    def _key(self, *parts: str) -> str:
        return "#".join((self._mark, *parts))

    def _author_key(self, author: str) -> str:
        return self._key("p", self.space.author_list(author))

    def _tag_key(self, key: str, value: str) -> str:
        return self._key("t", key, short_value(value))

    @property
    def any_key(self) -> str:
        """The key under which a listed index has all its subscriptions."""
        return self._key(_ANY)

    def interested(
        self,
        hints: Hints,
        events: Sequence[E],
        open_at: Callable[[Collection[str]], Mapping[str, S]],
    ) -> Iterator[tuple[E, S]]:
        """Each event with each subscription that one of its filters matches. `open_at` finds the
        subscriptions that are open at places."""
        return self.matching(self.candidates(hints, events), open_at)

    def candidates(self, hints: Hints, events: Sequence[E]) -> list[tuple[E, list[str]]]:
        """Each event with the places that hints name for it, each once. `matching` then decides
        whether a subscription is open there and matches."""
        keys = [self.event_keys(event) for event in events]
        places = hints.places(self, (key for some in keys for key in some))
        return [
            (event, list(dict.fromkeys(place for key in own for place in places.get(key, ()))))
            for event, own in zip(events, keys, strict=True)
        ]

    def matching(
        self,
        candidates: Sequence[tuple[E, Sequence[str]]],
        open_at: Callable[[Collection[str]], Mapping[str, S]],
    ) -> Iterator[tuple[E, S]]:
        """Each event with each subscription at its places that is open and matches it."""
        wanted = {place for _, places in candidates for place in places}
        if not wanted:
            return
        subscriptions = open_at(wanted)
        for event, places in candidates:
            for place in places:
                subscription = subscriptions.get(place)
                if subscription is not None and any(
                    filter.matches(event) for filter in subscription.filters
                ):
                    yield event, subscription
