"""Catching up with followed keys at one relay, by the best thing that the relay has.

A relay with numbers (NIP-CF) is asked for what came since our checkpoint. For keys that are new to
us, and at relays without numbers, sets are reconciled (NIP-77), and where the relay cannot do that
either, events are read page by page, newest first.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from farthing.agent.borrowed import DAY
from farthing.agent.intake import Intake
from farthing.context import Agent
from farthing.nostr.events import MAX_CREATED_AT
from farthing.nostr.filters import parse_filter
from farthing.nostr.kinds import Keeping, keeping
from farthing.ports.relays import Filter, RelayFailed, RelayRefused, RelaySession
from farthing.relay.members import TooManyMembers, find_members, seal_members
from farthing.store.feeds import FeedState

# What the smallest of the common limits on a message has room for.
AUTHORS_AT_ONCE = 250
_IDS_AT_ONCE = 250
_PAGE = 500
_LARGEST_PAGE = 5000
_SMALLEST_PAGE = 20  # no relay is known that sends fewer at once, if it has them
_KEEP_EVERY = 1000  # events after which the checkpoint is kept
_DIGITS = 16  # of a key, to know it again


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a relay says that it can do."""

    changes: bool = False
    negentropy: bool = False


def abilities_of(agent: Agent, url: str) -> Abilities:
    """By the relay's information document; a relay without one can only be read."""
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
    """One look at one relay. `stores` says whether what is taken in is kept here, so that sets can
    be compared. `keep` is told the state whenever something is behind us for good."""

    agent: Agent
    session: RelaySession
    intake: Intake
    abilities: Abilities
    stores: bool
    keep: Callable[[FeedState], None]

    def run(self, state: FeedState, authors: Sequence[str]) -> FeedState:
        """Take in what is new. The state afterwards."""
        self._began = self.agent.now
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
            failures=0, trouble="", not_before=0,
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
        """Events that replace each other may be older than what is asked for otherwise. They are
        few; all are read once a day, which renews those that are kept."""
        kinds = [kind for kind in self._kinds if keeping(kind) is Keeping.REPLACEABLE]
        is_due = self.agent.now - state.profiles >= DAY
        for authors in _chunks(known + new if is_due else new, AUTHORS_AT_ONCE):
            self._read({"authors": authors, "kinds": kinds})
        return replace(state, profiles=self.agent.now) if is_due else state

    def _read(self, filter: Filter) -> None:
        for value in self.session.read([filter]):
            self.intake.offer(value)
        self.intake.flush()

    def _by_number(
        self, state: FeedState, known: list[str], new: list[str]
    ) -> tuple[FeedState, list[str], list[str]]:
        """Read known keys by their numbers. The state, and which known and new keys are still to be
        read in another way."""
        try:
            # Before anything else: whatever is stored from here on has a higher number.
            last = self._last_number()
            if last < state.number:  # the relay has begun to count anew
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
        filter = {"authors": authors, "kinds": self._kinds}
        seen = state.number
        while True:
            since, truncated = seen, False
            for count, change in enumerate(self.session.changes(filter, since), 1):
                if change.event is not None:
                    self.intake.offer(change.event)
                seen, truncated = max(seen, change.number), change.truncated
                if keeps and count % _KEEP_EVERY == 0:
                    self.intake.flush()
                    self.keep(replace(state, number=seen, way="changes"))
            self.intake.flush()
            if not truncated:
                return seen
            if seen <= since:
                raise RelayFailed("the relay's changes feed does not go on")

    def _by_time(
        self, state: FeedState, authors: list[str], since: int, until: int = MAX_CREATED_AT
    ) -> FeedState:
        way = "req"
        chunks = list(_chunks(authors, AUTHORS_AT_ONCE))
        for chunk in chunks:
            if self.abilities.negentropy and self.stores and self._reconcile(chunk):
                way = "negentropy"
                continue
            pages = PagedRead(self.session, self.intake, until)
            try:
                pages.run({"authors": chunk, "kinds": self._kinds}, max(0, since))
                self.intake.flush()
            except RelayFailed:
                # The next look goes on from here; with several lots of keys, from the beginning.
                if len(chunks) == 1 and pages.until < MAX_CREATED_AT and since <= self._oldest:
                    self.intake.flush()
                    self.keep(self._broken_off(state, pages.until, authors))
                raise
        return state if state.way == "changes" else replace(state, way=way)

    def _broken_off(self, state: FeedState, until: int, authors: list[str]) -> FeedState:
        covered = list(dict.fromkeys([*state.authors, *_digits(authors)]))
        return replace(state, behind=until, authors=covered, time=self._began)

    def _reconcile(self, authors: list[str]) -> bool:
        """Whether the relay has reconciled: whatever we lacked has been fetched."""
        filter = {"authors": authors, "kinds": self._kinds, "since": self._oldest}
        settings = self.agent.settings
        try:
            ours = seal_members(
                find_members(self.agent, [parse_filter(filter)]), settings.max_sync_events
            )
            # A relay may name ids without end: no more than it may send events.
            needed = islice(self.session.reconcile(filter, ours), settings.max_feed_events)
            missing = list(needed)
        except (RelayRefused, TooManyMembers):
            return False
        for ids in _chunks(missing, _IDS_AT_ONCE):
            self._fetch(ids)
        return True

    def _fetch(self, ids: list[str]) -> None:
        """However few the relay sends at once, for as long as some come."""
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
    """Stored events by REQ, newest first, a page at a time, however few the relay sends at once."""

    def __init__(self, session: RelaySession, intake: Intake, until: int = MAX_CREATED_AT) -> None:
        self.until = until  # everything later has been read
        self._session = session
        self._intake = intake
        # What the relay sends at once: where fewer come, the relay has no more.
        self._largest = _SMALLEST_PAGE

    def run(self, filter: Filter, since: int) -> None:
        while self.until >= since:
            page = self._page(filter, since, self.until, _PAGE)
            if not page:
                return
            oldest = min(page.values())
            if oldest < self.until:
                self.until = oldest  # this second may go on, on the next page
                continue
            if self._may_be_cut(page, _PAGE):
                self._one_second(filter, self.until)
            self.until -= 1

    def _one_second(self, filter: Filter, second: int) -> None:
        """A second that fills a page: as many events as the relay will send at once, then by fewer
        authors at a time, then by fewer kinds. More events of one author, kind and second than a
        relay sends at once cannot be told apart."""
        page = self._page(filter, second, second, _LARGEST_PAGE)
        if not self._may_be_cut(page, _LARGEST_PAGE):
            return
        for part in _halves(filter):
            self._one_second(part, second)

    def _may_be_cut(self, page: Collection[str], limit: int) -> bool:
        """By what we asked for, or by what the relay sends at once."""
        return len(page) >= min(limit, self._largest)

    def _page(self, filter: Filter, since: int, until: int, limit: int) -> dict[str, int]:
        """When each event was made, by its id: those that were asked for."""
        asked = {**filter, "since": since, "until": until, "limit": limit}
        page: dict[str, int] = {}
        for value in self._session.read([asked]):
            event = self._intake.offer(value)
            if event is not None and since <= event.created_at <= until:
                page[event.id] = event.created_at
        self._largest = max(self._largest, len(page))
        return page


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


def _chunks(values: Sequence[str], size: int) -> Iterator[list[str]]:
    rest = iter(values)
    return iter(lambda: list(islice(rest, size)), [])
