"""Catching up with followed keys at one relay, by the best method that the relay supports.

A relay with a changes feed (NIP-CF) is asked for the changes since our checkpoint. For keys that
are new to us, and at relays without a changes feed, sets are reconciled (NIP-77). A relay without
NIP-77 is read page by page, newest events first.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from farthing.agent.borrowed import DAY
from farthing.agent.intake import Intake
from farthing.context import Agent
from farthing.nostr.events import MAX_CREATED_AT
from farthing.nostr.filters import parse_filter
from farthing.nostr.kinds import Keeping, keeping
from farthing.nostr.negentropy import SealedVector
from farthing.ports.relays import (
    Filter,
    RelayFailed,
    RelayRefused,
    RelaySession,
    TooMuchAsked,
)
from farthing.relay.members import TooManyMembers, find_members, seal_members
from farthing.store.feeds import FeedState

# As many as fit into a message, by the smallest of the common limits.
AUTHORS_AT_ONCE = 250
_IDS_AT_ONCE = 250
_PAGE = 500
_LARGEST_PAGE = 5000
_SMALLEST_PAGE = 20  # no known relay sends smaller pages while it has more events
_DIGITS = 16  # leading digits of a key that identify it in the state


@dataclass(frozen=True, slots=True)
class Abilities:
    """The protocols that a relay claims to support."""

    changes: bool = False
    negentropy: bool = False


def abilities_of(agent: Agent, url: str) -> Abilities:
    """According to the relay's information document. A relay without one is only read by REQ."""
    try:
        return abilities_in(agent.relays.information(url, agent.settings.gather_seconds))
    except RelayFailed:
        return Abilities()


def abilities_in(information: Mapping[str, Any]) -> Abilities:
    nips = information.get("supported_nips")
    known: Collection[Any] = nips if isinstance(nips, list) else ()
    return Abilities("CF" in known, 77 in known)


@dataclass
class CatchUp:
    """One round at one relay. `stores` says whether received events are stored here, so that sets
    can be compared. `keep` is called with the state whenever a part is complete."""

    agent: Agent
    session: RelaySession
    intake: Intake
    abilities: Abilities
    stores: bool
    keep: Callable[[FeedState], None]

    def run(self, state: FeedState, authors: Sequence[str]) -> FeedState:
        """Read the new events. Returns the new state."""
        self._began = self.agent.now
        self._trouble = ""
        covered = set(state.authors)
        known = [each for each in authors if each[:_DIGITS] in covered]
        new = [each for each in authors if each[:_DIGITS] not in covered]
        state = self._profiles(state, known, new)
        if self.abilities.changes:
            state, known, new = self._by_number(state, known, new)
        if known:
            state = self._by_time(state, known, state.time - self._overlap)
        if state.behind:
            state = self._by_time(state, list(authors), self._oldest, state.behind)
        if new:
            state = self._by_time(state, new, self._oldest)
        self.intake.flush()
        state = replace(
            state, authors=_digits(authors), time=self._began, behind=0,
            failures=0, trouble=self._trouble, not_before=0,
        )  # fmt: skip
        self.keep(state)
        return state

    @property
    def _kinds(self) -> list[int]:
        return sorted(self.agent.settings.follow_kinds)

    @property
    def _overlap(self) -> int:
        return self.agent.settings.feed_overlap_seconds

    @property
    def _oldest(self) -> int:
        return max(0, self.agent.now - self.agent.settings.follow_days * DAY)

    def _profiles(self, state: FeedState, known: list[str], new: list[str]) -> FeedState:
        """Read replaceable events, which may be older than the period that is read otherwise. There
        are few of one key, so all are read once a day. Reading an event again renews the stored
        copy."""
        kinds = [kind for kind in self._kinds if keeping(kind) is Keeping.REPLACEABLE]
        is_due = self.agent.now - state.profiles >= DAY
        for authors in _chunks(known + new if is_due else new, AUTHORS_AT_ONCE):
            pages = PagedRead(self.session, self.intake, self._crowded)
            pages.run({"authors": authors, "kinds": kinds}, 0)
            self.intake.flush()
        return replace(state, profiles=self.agent.now) if is_due else state

    def _by_number(
        self, state: FeedState, known: list[str], new: list[str]
    ) -> tuple[FeedState, list[str], list[str]]:
        """Read known keys from the changes feed. Returns the state, and the known and new keys that
        are still to be read by another method."""
        try:
            # This number is read first: every event stored from now on gets a higher number.
            last = self._last_number()
            if last < state.number:  # the relay has restarted its numbering
                return replace(state, number=last, way="changes"), [], known + new
            chunks = list(_chunks(known, AUTHORS_AT_ONCE))
            numbers = [self._changes(chunk, state, len(chunks) == 1) for chunk in chunks]
        except RelayRefused:
            return state, known, new
        return replace(state, number=min(numbers, default=last), way="changes"), [], new

    def _last_number(self) -> int:
        *_, end = self.session.changes({"kinds": self._kinds}, MAX_CREATED_AT)
        return end.number

    def _changes(self, authors: list[str], state: FeedState, keeps: bool) -> int:
        """Read a page at a time: a relay ends the connection of a client that stops reading."""
        filter = {"authors": authors, "kinds": self._kinds, "limit": _PAGE}
        seen = state.number
        while True:
            since, last, count, truncated = seen, seen, 0, False
            for change in self.session.changes(filter, since):
                seen, truncated = max(seen, change.number), change.truncated
                if change.event is not None:
                    self.intake.offer(change.event)
                    last, count = max(last, change.number), count + 1
            self.intake.flush()
            if count >= _PAGE and not truncated:
                seen, truncated = last, True  # not every relay says that there is more
            if not truncated:
                return seen
            if seen == since:
                raise RelayFailed("the relay's changes feed stopped before the last number")
            if keeps:
                self.keep(replace(state, number=seen, way="changes"))

    def _by_time(
        self, state: FeedState, authors: list[str], since: int, until: int = MAX_CREATED_AT
    ) -> FeedState:
        way = "req"
        chunks = list(_chunks(authors, AUTHORS_AT_ONCE))
        for chunk in chunks:
            if self.abilities.negentropy and self.stores and self._reconcile(chunk):
                way = "negentropy"
                continue
            pages = PagedRead(self.session, self.intake, self._crowded, until)
            try:
                pages.run({"authors": chunk, "kinds": self._kinds}, max(0, since))
                self.intake.flush()
            except RelayFailed:
                # The next round continues from here; with several groups of keys it starts again.
                if len(chunks) == 1 and pages.until < MAX_CREATED_AT and since <= self._oldest:
                    self.intake.flush()
                    self.keep(self._broken_off(state, pages.until, authors))
                raise
        return state if state.way == "changes" else replace(state, way=way)

    def _broken_off(self, state: FeedState, until: int, authors: list[str]) -> FeedState:
        covered = list(dict.fromkeys([*state.authors, *_digits(authors)]))
        return replace(state, behind=until, authors=covered, time=self._began)

    def _reconcile(self, authors: list[str]) -> bool:
        """Compare sets with the relay, and fetch the events that we lack. False if the relay cannot
        do this."""
        filter = {"authors": authors, "kinds": self._kinds}
        try:
            self._reconcile_times(filter, self._oldest, MAX_CREATED_AT)
        except (RelayRefused, TooManyMembers):
            return False
        return True

    def _reconcile_times(self, filter: Filter, since: int, until: int) -> None:
        """Compare the whole set; if it is too large for the relay or for us, compare parts of the
        time."""
        # A relay could name ids without end. It may name as many ids as it may send events.
        left = self.agent.settings.max_feed_events
        times = [(since, until)]
        while times:
            since, until = times.pop()
            part = _in_time(filter, since, until)
            try:
                needed = islice(self.session.reconcile(part, self._ours(part)), left)
                for ids in _chunks(needed, _IDS_AT_ONCE):  # fetched as they are named
                    left -= len(ids)
                    self._fetch(ids)
            except (TooMuchAsked, TooManyMembers):
                if since >= until or since > self._began:
                    raise
                # First divide at the present, then halve. The newer part comes first.
                middle = self._began if since < self._began < until else (since + until) // 2
                times += [(since, middle), (middle + 1, until)]

    def _ours(self, filter: Filter) -> SealedVector:
        if not self.stores:
            return SealedVector(b"")
        members = find_members(self.agent, [parse_filter(dict(filter))])
        return seal_members(members, self.agent.settings.max_sync_events)

    def _crowded(self, filter: Filter, second: int) -> None:
        """Read a second in which one author has more events of one kind than the relay sends at
        once. Pages cannot reach all of them, but comparing sets can."""
        if self.abilities.negentropy:
            try:
                self._reconcile_times(filter, second, second)
            except (RelayRefused, TooManyMembers):
                pass
            else:
                return
        self._trouble = "may have more events of one key in one second than it sends at once"

    def _fetch(self, ids: list[str]) -> None:
        """Fetch events by id. A relay may send only a few at once: ask again as long as some
        come."""
        left = set(ids)
        while left:
            came = set()
            for value in self.session.read([{"ids": sorted(left), "limit": len(left)}]):
                event = self.intake.offer(value)
                if event is not None:
                    came.add(event.id)
            self.intake.flush()
            if not came & left:
                return
            left -= came


class PagedRead:
    """Reads stored events by REQ, newest first, a page at a time. Pages may be of any size."""

    def __init__(
        self,
        session: RelaySession,
        intake: Intake,
        crowded: Callable[[Filter, int], None],
        until: int = MAX_CREATED_AT,
    ) -> None:
        self.until = until  # everything later has been read
        self._session = session
        self._intake = intake
        self._crowded = crowded
        # The relay's page size: a smaller page is the last one.
        self._largest = _SMALLEST_PAGE
        self._excludes_until = False

    def run(self, filter: Filter, since: int) -> None:
        goes_on = self.until < MAX_CREATED_AT
        while self.until >= since:
            page = self._next_page(filter, since) if goes_on else self._first_page(filter, since)
            if not page:
                return
            oldest = min(page.values())
            goes_on = oldest < self.until
            if goes_on:
                self.until = oldest  # the next page may have more events of this second
                continue
            if self._may_be_cut(page, _PAGE):
                self._one_second(filter, self.until)
            self.until -= 1

    def _first_page(self, filter: Filter, since: int) -> dict[str, int]:
        return self._page(filter, since, self.until, _PAGE)

    def _next_page(self, filter: Filter, since: int) -> dict[str, int]:
        """A page that begins with the second of events that have come already. Relays exist that
        exclude `until` (NIP-01 includes it): they are asked up to the following second."""
        page = self._first_page(filter, since)
        if self._excludes_until or self.until in page.values():
            return page
        self._excludes_until = True
        again = self._first_page(filter, since)
        self._excludes_until = self.until in again.values()
        return again if self._excludes_until else page

    def _one_second(self, filter: Filter, second: int) -> None:
        """Read a second that fills a page. First ask for as many events as the relay sends at once,
        then for fewer authors at a time, then for fewer kinds. If one author has more events of one
        kind in this second than a relay sends at once, `crowded` reads them."""
        page = self._page(filter, second, second, _LARGEST_PAGE)
        if not self._may_be_cut(page, _LARGEST_PAGE):
            return
        parts = list(_halves(filter))
        for part in parts:
            self._one_second(part, second)
        if not parts:
            self._crowded(filter, second)

    def _may_be_cut(self, page: Collection[str], limit: int) -> bool:
        """Whether a page may be cut off, by our limit or by the relay's page size."""
        return len(page) >= min(limit, self._largest)

    def _page(self, filter: Filter, since: int, until: int, limit: int) -> dict[str, int]:
        """The creation times of the requested events, by event id."""
        asked = {**_in_time(filter, since, until + self._excludes_until), "limit": limit}
        page: dict[str, int] = {}
        for value in self._session.read([asked]):
            event = self._intake.offer(value)
            if event is not None and since <= event.created_at <= until:
                page[event.id] = event.created_at
        self._largest = max(self._largest, len(page))
        return page


def _in_time(filter: Filter, since: int, until: int) -> Filter:
    """Without `until` where there is no end: relays exist that find nothing up to a time beyond 32
    bits."""
    ends = {"until": until} if until < MAX_CREATED_AT else {}
    return {**filter, "since": since, **ends}


def _halves(filter: Filter) -> Iterator[Mapping[str, Any]]:
    for name in ("authors", "kinds"):
        values = filter[name]
        if len(values) > 1:
            middle = len(values) // 2
            yield {**filter, name: values[:middle]}
            yield {**filter, name: values[middle:]}
            return


def _digits(authors: Sequence[str]) -> list[str]:
    return [each[:_DIGITS] for each in authors]


def _chunks(values: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(values)
    return iter(lambda: list(islice(rest, size)), [])
