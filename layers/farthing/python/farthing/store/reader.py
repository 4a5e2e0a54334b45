"""Stored events by filter: found from postings, read only if they are sent, counted, and kept for
the next request that asks the same."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Generic

from farthing.store.answers import Answer, ReaderProcesses, unpack_answer
from farthing.store.events import EventRecord, EventStore, event_key
from farthing.store.planner import (
    LARGEST_PAGE,
    SMALLEST_PAGE,
    Plan,
    ScanAllowance,
    ScanTooLong,
    candidates,
    plan,
    plan_tag,
)
from farthing.store.postings import (
    Postings,
    highest_sort_key,
    id_in,
    lowest_sort_key,
    postings_in,
    sort_key,
)
from farthing.store.recall import Question, Reading, Recall
from farthing.store.spaces import E, Wanted
from farthing.store.table import MAX_BATCH_GET, Engine, Query, Table, read_pages

_SCAN_PAGE = 4000

Visible = Callable[[EventRecord[E]], bool]


def to_all(_: EventRecord[Any]) -> bool:
    return True


class Reader(Generic[E]):
    """Finds the stored events of one space by filter."""

    def __init__(
        self,
        engine: Engine,
        events: EventStore[E],
        max_scan: int,
        processes: ReaderProcesses | None = None,
    ) -> None:
        self._engine = engine
        self._processes = processes
        self._events = events
        self._lists = events.lists
        self._recall = events.recall
        self._max_scan = max_scan

    def find(
        self,
        filter: Wanted[E],
        visible: Visible[E] = to_all,
        allowance: ScanAllowance | None = None,
    ) -> Iterator[EventRecord[E]]:
        """Events that match, newest first, as many as the filter's limit allows.

        Invisible events are skipped and do not count for the limit. Without a shared allowance, a
        filter has its own.
        """
        return self._find(filter, filter.limit, visible, allowance)

    def _find(
        self,
        filter: Wanted[E],
        limit: int | None,
        visible: Visible[E],
        allowance: ScanAllowance | None,
        reading: Reading | None = None,
    ) -> Iterator[EventRecord[E]]:
        if limit == 0 or _matches_nothing(filter):
            return iter(())
        if filter.ids is not None:
            found = self._by_id(filter, reading)
        else:
            found = self._by_posting(filter, limit, allowance, reading)
        if reading is not None:
            found = self._watching(found, reading)
        return islice((event for event in found if visible(event)), limit)

    def _watching(
        self, found: Iterator[EventRecord[E]], reading: Reading
    ) -> Iterator[EventRecord[E]]:
        """Watch for private events: an answer that has met one must not be cached for other
        clients."""
        private = self._events.space.private_kinds
        for event in found:
            if event.kind in private:
                reading.spoil()
            yield event

    def _by_id(self, filter: Wanted[E], reading: Reading | None) -> Iterator[EventRecord[E]]:
        assert filter.ids is not None
        stored = self._events.get_many(sorted(filter.ids), reading)
        if reading is not None and len(stored) < len(filter.ids):
            reading.spoil()  # missing events may be stored later
        alone = filter.is_of_ids_alone
        found = (each for each in stored.values() if alone or filter.matches(each.event))
        yield from sorted(found, key=order)

    def _by_posting(
        self,
        filter: Wanted[E],
        limit: int | None,
        allowance: ScanAllowance | None,
        reading: Reading | None = None,
    ) -> Iterator[EventRecord[E]]:
        chosen = plan(filter, self._lists)
        if reading is not None:
            reading.lists.update(chosen.lists)
        unanswered = set(filter.tags) - {chosen.answered_tag}
        wanted = limit if limit is not None else LARGEST_PAGE
        allowance = allowance or ScanAllowance(self._max_scan)
        found = candidates(self._engine, filter, chosen, wanted, allowance)
        while ids := found.take(min(MAX_BATCH_GET, max(wanted, SMALLEST_PAGE))):
            stored = self._events.get_many(ids, reading)
            if reading is not None and len(stored) < len(ids):
                reading.spoil()  # a posting is written before its event
            for event_id in ids:
                event = stored.get(event_id)
                if event is not None and (not unanswered or filter.matches_tags(event.event)):
                    if limit is not None:  # near the limit, smaller chunks suffice
                        wanted -= 1
                    yield event

    def scan(self, filter: Wanted[E], allowance: ScanAllowance) -> Iterator[Postings] | None:
        """Every posting of a filter, page by page, in no order and possibly more than once; None if
        postings alone cannot answer it."""
        if filter.ids is not None or filter.limit is not None or len(filter.tags) > 1:
            return None
        # A single tag has its own list: a posting shows kind and author, but no other tags.
        chosen = (plan_tag if filter.tags else plan)(filter, self._lists)
        return self._scan(filter, chosen.lists, allowance)

    def _scan(
        self, filter: Wanted[E], lists: Sequence[str], allowance: ScanAllowance
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
        allowance: ScanAllowance | None = None,
        reading: Reading | None = None,
    ) -> Iterator[EventRecord[E]]:
        """The events that match any of the filters, each filter within its own limit: newest first,
        each once. All filters share one allowance. `reading` records the lists and keys that were
        read."""
        shared = allowance or ScanAllowance(self._max_scan)

        def find(filter: Wanted[E]) -> Iterator[EventRecord[E]]:
            return self._find(filter, filter.limit, visible, shared, reading)

        if len(filters) == 1:
            yield from find(filters[0])
            return
        streams = [_primed(find(filter)) for filter in filters]
        last = None
        for event in heapq.merge(*self._engine.together(*streams), key=order):
            if event.id != last:
                yield event
            last = event.id

    def answer(
        self, filters: Sequence[Wanted[E]], text: str, visible: Visible[E], allowance: ScanAllowance
    ) -> Iterable[EventRecord[E]]:
        """As `find_any`, but from the cache if the answer was read recently. `text` is equal only
        for equal filters."""
        if self._recall is None:
            answer = self._read_elsewhere(self._processes, filters, text, allowance)
            return self.find_any(filters, visible, allowance) if answer is None else answer.records
        question = self.question(text)
        found = self._recall.answer(question)
        if found is None:
            found = self._keep_from_elsewhere(
                self._processes, self._recall, question, filters, allowance
            )
        if found is not None:
            return found
        return self._noting(self._recall, question, filters, visible, allowance)

    def question(self, text: str) -> Question:
        return self._events.space.name, text

    def _read_elsewhere(
        self,
        processes: ReaderProcesses | None,
        filters: Sequence[Wanted[E]],
        text: str,
        allowance: ScanAllowance,
    ) -> Answer | None:
        """The answer of another process, which never includes private events."""
        if processes is None or all(map(_is_little, filters)):
            return None
        packed = processes.answer(text, self._events.now, allowance.left)
        return None if packed is None else unpack_answer(packed, self._events.space.parse)

    def _keep_from_elsewhere(
        self,
        processes: ReaderProcesses | None,
        recall: Recall,
        question: Question,
        filters: Sequence[Wanted[E]],
        allowance: ScanAllowance,
    ) -> Sequence[EventRecord[E]] | None:
        if processes is None or all(map(_is_little, filters)):
            return None
        with recall.reading() as reading:
            # The keys are not known beforehand, so no event at all may change during the read.
            reading.any_key = True
            for filter in filters:
                if filter.ids is None and not _matches_nothing(filter):
                    reading.lists.update(plan(filter, self._lists).lists)
            answer = self._read_elsewhere(processes, filters, question[1], allowance)
            if answer is None or not answer.lasts:
                return None if answer is None else answer.records
            space = self._events.space
            kept = {event_key(space, record.id): record for record in answer.records}
            recall.keep_records(reading, kept)
            records = list(kept.values())
            recall.keep_answer(reading, question, records)
        return records

    def _noting(
        self,
        recall: Recall,
        question: Question,
        filters: Sequence[Wanted[E]],
        visible: Visible[E],
        allowance: ScanAllowance,
    ) -> Iterator[EventRecord[E]]:
        given = []
        with recall.reading() as reading:
            for event in self.find_any(filters, visible, allowance, reading):
                given.append(event)
                yield event
            recall.keep_answer(reading, question, given)

    def count_any(
        self,
        filters: Sequence[Wanted[E]],
        exactly: int,
        visible: Visible[E] = to_all,
        allowance: ScanAllowance | None = None,
    ) -> tuple[int, bool]:
        """How many events match any of the filters, and whether that is only an estimate.

        Up to `exactly` every event is read. Beyond that number the postings are counted, a few of
        which may have no event, and private kinds are left out. All filters share one allowance.
        """
        shared = allowance or ScanAllowance(self._max_scan)
        seen: set[str] = set()
        large = []
        for filter in filters:
            by_id = filter.ids is not None  # a request by ids reads every event anyway
            limit = None if by_id else exactly + 1
            events = list(self._find(filter, limit, visible, shared))
            seen.update(event.id for event in events)
            if len(events) > exactly and not by_id:
                large.append(filter)
        # Estimates come after the exact counts, with the rest of the allowance.
        for filter in large:
            chosen = plan(filter, self._lists)
            if set(filter.tags) <= {chosen.answered_tag}:
                seen.update(self._posting_ids(filter, chosen, shared))
        return len(seen), bool(large)

    def _posting_ids(
        self, filter: Wanted[E], chosen: Plan, allowance: ScanAllowance
    ) -> Iterator[str]:
        found = candidates(self._engine, filter, chosen, LARGEST_PAGE, allowance)
        private = self._events.space.private_kinds
        try:
            while rows := found.take_rows(min(LARGEST_PAGE, max(1, allowance.left))):
                yield from (id_in(row.sk) for row in rows if row.item["k"] not in private)
        except ScanTooLong:
            return


def order(event: EventRecord[Any]) -> str:
    return sort_key(event.created_at, event.id)


def _matches_nothing(filter: Wanted[Any]) -> bool:
    fields = [filter.ids, filter.authors, filter.kinds, *filter.tags.values()]
    return any(field is not None and not field for field in fields)


def _is_little(filter: Wanted[Any]) -> bool:
    """Whether reading the answer here is as fast as asking another process."""
    one_id = filter.ids is not None and len(filter.ids) == 1
    return one_id or filter.limit == 0 or _matches_nothing(filter)


def _primed(events: Iterator[EventRecord[E]]) -> Callable[[], Iterator[EventRecord[E]]]:
    """Read the first event now, so that several filters can start in parallel."""

    def prime() -> Iterator[EventRecord[E]]:
        return chain(list(islice(events, 1)), events)

    return prime
