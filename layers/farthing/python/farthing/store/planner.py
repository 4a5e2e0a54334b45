"""The choice of the postings that answer a filter: the shortest lists that can serve, merged newest
first."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from farthing.store.postings import Lists, highest_sort_key, id_in, lowest_sort_key
from farthing.store.spaces import Wanted
from farthing.store.table import Engine, Page, Query, Row, Table

# Above this many (author, kind) pairs, reading one list for each author and checking the kinds on
# the postings costs fewer requests.
_MOST_PAIRS = 256
# Above this many kinds, each of which has several lists, the list of all events is read.
_MOST_KINDS = 64
SMALLEST_PAGE = 8
LARGEST_PAGE = 1000
_ENTRIES_BETWEEN_LOOKS = 250


class ScanTooLong(Exception):
    """The answer needs more index entries than one request may read."""


class ScanAllowance:
    """Index entries that may be read, for one filter or for several together. After every few
    hundred entries, `look_up` is called with the number so far, and may raise."""

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
    """The lists to merge, and the conditions that all their postings meet already."""

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
        return plan_tag(filter, lists)
    if filter.kinds is not None and len(filter.kinds) <= _MOST_KINDS:
        by_kind = [pk for kind in sorted(filter.kinds) for pk in lists.by_kind(kind)]
        return Plan(by_kind, answers_kinds=True)
    return Plan(lists.everything())


def _each_once(names: Iterable[str]) -> list[str]:
    """The names without repetitions: two authors share a list if lists use only a part of the
    key."""
    return list(dict.fromkeys(names))


def plan_tag(filter: Wanted[Any], lists: Lists) -> Plan:
    """The lists of the tag with the fewest values."""
    key = min(filter.tags, key=lambda key: (len(filter.tags[key]), key))
    return Plan([lists.by_tag(key, value) for value in sorted(filter.tags[key])], key)


class _List:
    """One list of postings: some are in memory, and `query` reads the rest."""

    __slots__ = ("query", "rows")

    def __init__(self, query: Query) -> None:
        self.query: Query | None = query
        self.rows: Sequence[Row] = ()

    def take(self, page: Page) -> None:
        assert self.query is not None
        self.rows = page.rows
        larger = min(LARGEST_PAGE, 2 * (self.query.limit or SMALLEST_PAGE))
        more = page.after is not None
        self.query = self.query._replace(after=page.after, limit=larger) if more else None

    def take_out(self, last: str | None) -> Sequence[Row]:
        """The rows up to this sort key, all of them if it is None."""
        end = len(self.rows) if last is None else bisect_right(self.rows, last, key=_SORT_KEY)
        taken, self.rows = self.rows[:end], self.rows[end:]
        return taken


_SORT_KEY = itemgetter(0)  # of a row


def merged(engine: Engine, queries: Sequence[Query]) -> Iterator[Sequence[Row]]:
    """The postings of all the lists in batches, newest first, each event once."""
    lists = [_List(query) for query in queries]
    while lists:
        empty = [each for each in lists if not each.rows and each.query is not None]
        if empty:
            pages = engine.query_many([each.query for each in empty if each.query is not None])
            for each, page in zip(empty, pages, strict=True):
                each.take(page)
            continue  # a page may be empty although more pages follow
        lists = [each for each in lists if each.rows]
        # The last sort key up to which every list has been read. Later postings wait for the next
        # batch.
        known = min((each.rows[-1].sk for each in lists if each.query is not None), default=None)
        yield _merge([each.take_out(known) for each in lists])


def _merge(parts: Sequence[Sequence[Row]]) -> Sequence[Row]:
    if len(parts) <= 1:
        return parts[0] if parts else ()
    together = {row.sk: row for part in parts for row in part}
    return [together[sk] for sk in sorted(together)]


class Candidates:
    """Gives out the postings that may match, newest first. Every posting read counts for the
    allowance."""

    def __init__(
        self,
        rows: Iterator[Row],
        kinds: frozenset[int] | None,
        has_author: Callable[[str], bool] | None,
        allowance: ScanAllowance,
    ) -> None:
        self._rows = rows
        self._kinds = kinds
        self._has_author = has_author
        self._allowance = allowance

    def take(self, number: int) -> list[str]:
        """The ids of the next candidates; fewer than `number` only at the end."""
        return [id_in(row.sk) for row in self.take_rows(number)]

    def take_rows(self, number: int) -> list[Row]:
        taken: list[Row] = []
        while len(taken) < number:
            # Read no more than the allowance permits, and keep the candidates found so far.
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


def candidates(
    engine: Engine, filter: Wanted[Any], chosen: Plan, expected: int, allowance: ScanAllowance
) -> Candidates:
    """The postings of the chosen lists, newest first, checked as far as a posting allows."""
    page = min(LARGEST_PAGE, max(SMALLEST_PAGE, 2 * expected // max(1, len(chosen.lists))))
    if len(chosen.lists) == 1:
        page = min(LARGEST_PAGE, max(1, expected))
    low, high = lowest_sort_key(filter.until), highest_sort_key(filter.since)
    nothing = low is not None and high is not None and low > high
    lists = [] if nothing else chosen.lists
    queries = [Query(Table.POSTINGS, pk, low, high, limit=page) for pk in lists]
    kinds = None if chosen.answers_kinds else filter.kinds
    has_author = None if filter.authors is None else filter.has_author
    rows = chain.from_iterable(merged(engine, queries))
    return Candidates(rows, kinds, has_author, allowance)
