"""Answering filters from postings: pick the shortest lists that can serve, merge them newest first,
and read only the events that are sent.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Generic

from farthing.store.events import EventRecord, EventStore
from farthing.store.postings import (
    Lists,
    Postings,
    highest_sort_key,
    id_in,
    lowest_sort_key,
    postings_in,
    sort_key,
)
from farthing.store.spaces import E, Wanted
from farthing.store.table import MAX_BATCH_GET, Engine, Page, Query, Row, Table, read_pages

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

    @property
    def left(self) -> int:
        return self.most - self._spent

    def spend(self, number: int) -> None:
        self._spent += number
        if self._spent > self.most:
            raise ScanTooLong
        if self._spent >= self._next_look:
            self._next_look = self._spent + _ENTRIES_BETWEEN_LOOKS
            self._look_up(self._spent)


@dataclass(frozen=True, slots=True)
class Plan:
    """The lists to merge, and what need not be checked any more on what they hold."""

    lists: Sequence[str]
    answered_tag: str | None = None
    answers_kinds: bool = False


def plan(filter: Wanted[Any], lists: Lists) -> Plan:
    """The most selective lists for a filter without ids."""
    if filter.authors is not None:
        authors = sorted(filter.authors)
        if filter.kinds is not None and len(authors) * len(filter.kinds) <= _MOST_PAIRS:
            pairs = ((author, kind) for author in authors for kind in sorted(filter.kinds))
            return Plan(_each_once(lists.by_author_and_kind(*pair) for pair in pairs),
                        answers_kinds=True)  # fmt: skip
        if not filter.tags or len(authors) <= min(map(len, filter.tags.values())):
            return Plan(_each_once(map(lists.by_author, authors)))
    if filter.tags:
        return _plan_tag(filter, lists)
    if filter.kinds is not None and len(filter.kinds) <= _MOST_KINDS:
        by_kind = [pk for kind in sorted(filter.kinds) for pk in lists.by_kind(kind)]
        return Plan(by_kind, answers_kinds=True)
    return Plan(lists.everything())


def _each_once(names: Iterable[str]) -> list[str]:
    """Where authors are listed by a part of their keys, two may share a list."""
    return list(dict.fromkeys(names))


def _plan_tag(filter: Wanted[Any], lists: Lists) -> Plan:
    key = min(filter.tags, key=lambda key: (len(filter.tags[key]), key))
    return Plan([lists.by_tag(key, value) for value in sorted(filter.tags[key])], key)


class _List:
    """One list of postings, of which some are here and the rest is behind `query`."""

    __slots__ = ("query", "rows")

    def __init__(self, query: Query) -> None:
        self.query: Query | None = query
        self.rows: Sequence[Row] = ()

    def take(self, page: Page) -> None:
        assert self.query is not None
        self.rows = page.rows
        larger = min(_LARGEST_PAGE, 2 * (self.query.limit or _SMALLEST_PAGE))
        more = page.after is not None
        self.query = self.query._replace(after=page.after, limit=larger) if more else None

    def take_out(self, last: str | None) -> Sequence[Row]:
        """The rows up to this sort key, all of them if it is None."""
        end = len(self.rows) if last is None else bisect_right(self.rows, last, key=_SORT_KEY)
        taken, self.rows = self.rows[:end], self.rows[end:]
        return taken


_SORT_KEY = itemgetter(0)  # of a row


def merged(engine: Engine, queries: Sequence[Query]) -> Iterator[Sequence[Row]]:
    """The postings of all the lists, newest first, each event once; some at a time."""
    lists = [_List(query) for query in queries]
    while lists:
        empty = [each for each in lists if not each.rows and each.query is not None]
        if empty:
            pages = engine.query_many([each.query for each in empty if each.query is not None])
            for each, page in zip(empty, pages, strict=True):
                each.take(page)
            continue  # a page may be empty with more to come
        lists = [each for each in lists if each.rows]
        # Up to where every list is known. What any of them holds behind that comes later.
        known = min((each.rows[-1].sk for each in lists if each.query is not None), default=None)
        yield _merge([each.take_out(known) for each in lists])


def _merge(parts: Sequence[Sequence[Row]]) -> Sequence[Row]:
    if len(parts) <= 1:
        return parts[0] if parts else ()
    together = {row.sk: row for part in parts for row in part}
    return [together[sk] for sk in sorted(together)]


class Reader(Generic[E]):
    """Finds the stored events of one space by filter."""

    def __init__(self, engine: Engine, events: EventStore[E], max_scan: int) -> None:
        self._engine = engine
        self._events = events
        self._lists = events.lists
        self._max_scan = max_scan

    def _candidates(
        self, filter: Wanted[E], chosen: Plan, expected: int, allowance: Allowance
    ) -> "_Candidates":
        """What the lists hold, newest first, checked as far as a posting tells."""
        page = min(_LARGEST_PAGE, max(_SMALLEST_PAGE, 2 * expected // max(1, len(chosen.lists))))
        if len(chosen.lists) == 1:
            page = min(_LARGEST_PAGE, max(1, expected))
        low, high = lowest_sort_key(filter.until), highest_sort_key(filter.since)
        nothing = low is not None and high is not None and low > high
        lists = [] if nothing else chosen.lists
        queries = [Query(Table.POSTINGS, pk, low, high, limit=page) for pk in lists]
        kinds = None if chosen.answers_kinds else filter.kinds
        has_author = None if filter.authors is None else filter.has_author
        rows = chain.from_iterable(merged(self._engine, queries))
        return _Candidates(rows, kinds, has_author, allowance)

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
        chosen = plan(filter, self._lists)
        unanswered = set(filter.tags) - {chosen.answered_tag}
        wanted = limit if limit is not None else _LARGEST_PAGE
        allowance = allowance or Allowance(self._max_scan)
        candidates = self._candidates(filter, chosen, wanted, allowance)
        while ids := candidates.take(min(MAX_BATCH_GET, max(wanted, _SMALLEST_PAGE))):
            stored = self._events.get_many(ids)
            for event_id in ids:
                event = stored.get(event_id)
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
        if len(filters) == 1:
            yield from self.find(filters[0], visible, shared)
            return
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
            chosen = plan(filter, self._lists)
            if set(filter.tags) <= {chosen.answered_tag}:
                seen.update(self._posting_ids(filter, chosen, shared))
        return len(seen), bool(large)

    def _posting_ids(self, filter: Wanted[E], chosen: Plan, allowance: Allowance) -> Iterator[str]:
        candidates = self._candidates(filter, chosen, _LARGEST_PAGE, allowance)
        private = self._events.space.private_kinds
        try:
            while rows := candidates.take_rows(min(_LARGEST_PAGE, max(1, allowance.left))):
                yield from (id_in(row.sk) for row in rows if row.item["k"] not in private)
        except ScanTooLong:
            return


class _Candidates:
    """Postings, newest first, of which those are given out that may match. Each that is looked at
    counts."""

    def __init__(
        self,
        rows: Iterator[Row],
        kinds: frozenset[int] | None,
        has_author: Callable[[str], bool] | None,
        allowance: Allowance,
    ) -> None:
        self._rows = rows
        self._kinds = kinds
        self._has_author = has_author
        self._allowance = allowance

    def take(self, number: int) -> list[str]:
        """The ids of the next ones, fewer only at the end."""
        return [id_in(row.sk) for row in self.take_rows(number)]

    def take_rows(self, number: int) -> list[Row]:
        taken: list[Row] = []
        while len(taken) < number:
            # Not more than may be looked at: what was found up to there counts.
            most = min(number - len(taken), max(1, self._allowance.left))
            some = list(islice(self._rows, most))
            if not some:
                break
            self._allowance.spend(len(some))
            taken.extend(filter(self._may_match, some) if self._checks else some)
        return taken

    @property
    def _checks(self) -> bool:
        return self._kinds is not None or self._has_author is not None

    def _may_match(self, row: Row) -> bool:
        if self._kinds is not None and row.item["k"] not in self._kinds:
            return False
        return self._has_author is None or self._has_author(row.item["p"])


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
