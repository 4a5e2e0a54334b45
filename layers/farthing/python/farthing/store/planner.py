"""Answering filters from postings: pick the shortest lists that can serve, merge them newest first,
and read only the events that are sent.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic

from farthing.store.events import EventRecord, EventStore
from farthing.store.postings import (
    Lists,
    Posting,
    Postings,
    highest_sort_key,
    lowest_sort_key,
    posting_of,
    postings_in,
    sort_key,
)
from farthing.store.spaces import E, Wanted
from farthing.store.table import MAX_BATCH_GET, Engine, Page, Query, Table, read_pages

# Above this many (author, kind) pairs one list an author, with the kinds checked on the posting,
# costs fewer requests.
_MOST_PAIRS = 256
# Likewise of kinds, each of which is spread over several lists: above it all events are read.
_MOST_KINDS = 64
_SMALLEST_PAGE = 8
_LARGEST_PAGE = 1000
_SCAN_PAGE = 4000
_ENTRIES_BETWEEN_LOOKS = 250


Visible = Callable[[EventRecord[E]], bool]


def to_all(_: EventRecord[Any]) -> bool:
    return True


class ScanTooLong(Exception):
    """More index entries would have to be read than are allowed to find what is asked for."""


class Allowance:
    """Index entries that may be read, for one filter or for several together. After every few
    hundred the holder is called with the number so far, and may raise."""

    def __init__(self, most: int, look_up: Callable[[int], None] = lambda _: None) -> None:
        self.most = most
        self._spent = 0
        self._look_up = look_up
        self._next_look = _ENTRIES_BETWEEN_LOOKS

    def spend(self, number: int) -> None:
        self._spent += number
        if self._spent > self.most:
            raise ScanTooLong
        if self._spent >= self._next_look:
            self._next_look = self._spent + _ENTRIES_BETWEEN_LOOKS
            self._look_up(self._spent)


@dataclass(frozen=True, slots=True)
class Plan:
    """The lists to merge, and which tag they answer already."""

    lists: Sequence[str]
    answered_tag: str | None = None


def plan(filter: Wanted[Any], lists: Lists) -> Plan:
    """The most selective lists for a filter without ids."""
    if filter.authors is not None:
        authors = sorted(filter.authors)
        if filter.kinds is not None and len(authors) * len(filter.kinds) <= _MOST_PAIRS:
            kinds = sorted(filter.kinds)
            return _plan(lists.by_author_and_kind(each, kind) for each in authors for kind in kinds)
        if not filter.tags or len(authors) <= min(map(len, filter.tags.values())):
            return _plan(map(lists.by_author, authors))
    if filter.tags:
        return _plan_tag(filter, lists)
    if filter.kinds is not None and len(filter.kinds) <= _MOST_KINDS:
        return _plan(pk for kind in sorted(filter.kinds) for pk in lists.by_kind(kind))
    return _plan(lists.everything())


def _plan(names: Iterable[str]) -> Plan:
    # Each once: where authors are listed by a part of their keys, two may share a list.
    return Plan(list(dict.fromkeys(names)))


def _plan_tag(filter: Wanted[Any], lists: Lists) -> Plan:
    key = min(filter.tags, key=lambda key: (len(filter.tags[key]), key))
    return Plan([lists.by_tag(key, value) for value in sorted(filter.tags[key])], key)


class _List:
    """One list of postings, read page by page as the merge needs it."""

    def __init__(self, query: Query) -> None:
        self.query: Query | None = query
        self.postings: list[Posting] = []  # reversed: the next one is the last

    def fill(self, engine: Engine) -> None:
        while not self.postings and self.query is not None:
            larger = min(_LARGEST_PAGE, 2 * (self.query.limit or _SMALLEST_PAGE))
            query = self.query._replace(limit=larger)
            self.take(query, engine.query(query))

    def take(self, query: Query, page: Page) -> None:
        self.postings = [posting_of(row) for row in reversed(page.rows)]
        self.query = None if page.after is None else query._replace(after=page.after)


def merged(engine: Engine, queries: Sequence[Query]) -> Iterator[Posting]:
    """The postings of all the lists, newest first, each event once."""
    lists = [_List(query) for query in queries]
    for each, page in zip(lists, engine.query_many(queries), strict=True):
        assert each.query is not None
        each.take(each.query, page)
    heap: list[tuple[str, int]] = []

    def push(number: int) -> None:
        lists[number].fill(engine)
        if lists[number].postings:
            heapq.heappush(heap, (lists[number].postings[-1].sk, number))

    for number in range(len(lists)):
        push(number)
    last = None
    while heap:
        sk, number = heapq.heappop(heap)
        posting = lists[number].postings.pop()
        if sk != last:
            yield posting
        last = sk
        push(number)


class Reader(Generic[E]):
    """Finds the stored events of one space by filter."""

    def __init__(self, engine: Engine, events: EventStore[E], max_scan: int) -> None:
        self._engine = engine
        self._events = events
        self._lists = events.lists
        self._max_scan = max_scan

    def postings(
        self, filter: Wanted[E], expected: int, allowance: Allowance | None = None
    ) -> Iterator[Posting]:
        """Candidates, newest first, checked as far as a posting tells."""
        allowance = allowance or Allowance(self._max_scan)
        lists = plan(filter, self._lists).lists
        page = min(_LARGEST_PAGE, max(_SMALLEST_PAGE, 2 * expected // max(1, len(lists))))
        if len(lists) == 1:
            page = min(_LARGEST_PAGE, max(1, expected))
        low, high = lowest_sort_key(filter.until), highest_sort_key(filter.since)
        if low is not None and high is not None and low > high:
            return
        queries = [Query(Table.POSTINGS, pk, low, high, limit=page) for pk in lists]
        for posting in merged(self._engine, queries):
            allowance.spend(1)
            if filter.kinds is not None and posting.kind not in filter.kinds:
                continue
            if filter.has_author(posting.pubkey):
                yield posting

    def find(
        self, filter: Wanted[E], visible: Visible[E] = to_all, allowance: Allowance | None = None
    ) -> Iterator[EventRecord[E]]:
        """Events that match, newest first, as many as the filter's limit allows.

        What is not visible is passed over as if it were not there, so it uses up no limit. Without
        an allowance that it shares with others, a filter has one of its own.
        """
        return self._find(filter, filter.limit, visible, allowance)

    def _find(
        self,
        filter: Wanted[E],
        limit: int | None,
        visible: Visible[E],
        allowance: Allowance | None,
    ) -> Iterator[EventRecord[E]]:
        if limit == 0 or _matches_nothing(filter):
            return iter(())
        by_id = filter.ids is not None
        found = self._by_id(filter) if by_id else self._by_posting(filter, limit, allowance)
        return islice((event for event in found if visible(event)), limit)

    def _by_id(self, filter: Wanted[E]) -> Iterator[EventRecord[E]]:
        assert filter.ids is not None
        found = self._events.get_many(sorted(filter.ids)).values()
        yield from sorted((event for event in found if filter.matches(event.event)), key=order)

    def _by_posting(
        self, filter: Wanted[E], limit: int | None, allowance: Allowance | None
    ) -> Iterator[EventRecord[E]]:
        unanswered = set(filter.tags) - {plan(filter, self._lists).answered_tag}
        wanted = limit if limit is not None else _LARGEST_PAGE
        candidates = self.postings(filter, wanted, allowance)
        while True:
            chunk = list(islice(candidates, min(MAX_BATCH_GET, max(wanted, _SMALLEST_PAGE))))
            if not chunk:
                return
            stored = self._events.get_many(posting.id for posting in chunk)
            for posting in chunk:
                event = stored.get(posting.id)
                if event is not None and (not unanswered or filter.matches_tags(event.event)):
                    if limit is not None:  # towards the end smaller chunks will do
                        wanted -= 1
                    yield event

    def scan(self, filter: Wanted[E], allowance: Allowance) -> Iterator[Postings] | None:
        """Every posting of a filter, page by page, in no order and possibly more than once; None
        where postings alone cannot answer it."""
        if filter.ids is not None or filter.limit is not None or len(filter.tags) > 1:
            return None
        # Of one tag its own list: kinds and authors are seen in a posting, other tags are not.
        chosen = (_plan_tag if filter.tags else plan)(filter, self._lists)
        return self._scan(filter, chosen.lists, allowance)

    def _scan(
        self, filter: Wanted[E], lists: Sequence[str], allowance: Allowance
    ) -> Iterator[Postings]:
        low, high = lowest_sort_key(filter.until), highest_sort_key(filter.since)
        if _matches_nothing(filter) or (low is not None and high is not None and low > high):
            return
        kinds = filter.kinds
        for pk in lists:
            query = Query(Table.POSTINGS, pk, low, high, limit=_SCAN_PAGE)
            for page in read_pages(self._engine, query):
                allowance.spend(len(page.rows))
                found = postings_in(page.rows)
                if kinds is not None and not kinds.issuperset(found.kinds):
                    found = found.select(kind in kinds for kind in found.kinds)
                authors = set(found.pubkeys) if filter.authors is not None else set()
                others = {pubkey for pubkey in authors if not filter.has_author(pubkey)}
                if others:
                    found = found.select(pubkey not in others for pubkey in found.pubkeys)
                yield found

    def find_any(
        self,
        filters: Sequence[Wanted[E]],
        visible: Visible[E] = to_all,
        allowance: Allowance | None = None,
    ) -> Iterator[EventRecord[E]]:
        """What any of the filters matches, each within its own limit: newest first, each once. All
        of them share one allowance."""
        shared = allowance or Allowance(self._max_scan)
        streams = [_primed(self.find(filter, visible, shared)) for filter in filters]
        last = None
        for event in heapq.merge(*self._engine.together(*streams), key=order):
            if event.id != last:
                yield event
            last = event.id

    def count_any(
        self,
        filters: Sequence[Wanted[E]],
        exactly: int,
        visible: Visible[E] = to_all,
        allowance: Allowance | None = None,
    ) -> tuple[int, bool]:
        """How many events match any of the filters, and whether that is only an estimate.

        Up to `exactly` every event is looked at. Beyond it the rest is counted by postings, a few
        of which may point nowhere, and private kinds are left out. All filters share one allowance.
        """
        shared = allowance or Allowance(self._max_scan)
        seen: set[str] = set()
        large = []
        for filter in filters:
            by_id = filter.ids is not None  # then all of them are read anyway
            limit = None if by_id else exactly + 1
            events = list(self._find(filter, limit, visible, shared))
            seen.update(event.id for event in events)
            if len(events) > exactly and not by_id:
                large.append(filter)
        # After all filters have been looked at: what is left of the allowance is for estimates.
        for filter in large:
            if set(filter.tags) <= {plan(filter, self._lists).answered_tag}:
                seen.update(self._posting_ids(filter, shared))
        return len(seen), bool(large)

    def _posting_ids(self, filter: Wanted[E], allowance: Allowance) -> Iterator[str]:
        try:
            for posting in self.postings(filter, _LARGEST_PAGE, allowance):
                if posting.kind not in self._events.space.private_kinds:
                    yield posting.id
        except ScanTooLong:
            return


def order(event: EventRecord[Any]) -> str:
    return sort_key(event.created_at, event.id)


def _matches_nothing(filter: Wanted[Any]) -> bool:
    fields = [filter.ids, filter.authors, filter.kinds, *filter.tags.values()]
    return any(field is not None and not field for field in fields)


def _primed(events: Iterator[EventRecord[E]]) -> Callable[[], Iterator[EventRecord[E]]]:
    """Read the first event now, so that several filters can start side by side."""

    def prime() -> Iterator[EventRecord[E]]:
        return chain(list(islice(events, 1)), events)

    return prime
