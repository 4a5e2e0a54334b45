"""The content of a subscription behind a position, in order: stored events, EOSE, the numbered log.

No record is kept for a single event. The log is read from the position to its present end.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from farthing.btp_nips.identity import owner_pubkey
from farthing.btp_nips.lifecycle import State, delivery_start
from farthing.btp_nips.positions import Position, backlog_behind, live, stored
from farthing.context import Agent
from farthing.relay.visibility import visible_to
from farthing.store.changes import Change
from farthing.store.events import StoredEvent
from farthing.store.paid_records import PaidSubscription

NOTHING_KNOWN: Final[Mapping[str, StoredEvent]] = MappingProxyType({})

_AT_ONCE: Final = 100
# With more authors than this, the whole log is read, and its entries are filtered by author.
_MOST_AUTHOR_LISTS: Final = 100


class Found(NamedTuple):
    """The event at a position, or EOSE if there is no event."""

    position: Position
    event: StoredEvent | None

    @property
    def is_eose(self) -> bool:
        return self.event is None


class Reading:
    """Reads onward from a position. `reached` is the last position read: skipped events match no
    filter, or are no longer stored. `more` says that the reading stopped before the end."""

    def __init__(
        self,
        agent: Agent,
        subscription: PaidSubscription,
        backlog: bytes,
        start: Position,
        *,
        at_once: int = _AT_ONCE,
        known: Mapping[str, StoredEvent] = NOTHING_KNOWN,
    ) -> None:
        """`at_once` is the number of events that are read together. `known` has events that were
        just read."""
        self._agent = agent
        self._subscription = subscription
        self._backlog = backlog
        self._visible = visible_to(_keys_of(subscription))
        self._at_once = min(at_once, _AT_ONCE)
        self._known = known
        self.reached = start
        self.more = False
        self._entries = self._all(start)
        self._next: Found | None = None

    def take(self, most: int) -> list[Found]:
        """Up to `most` further events, and EOSE if it comes next."""
        found: list[Found] = []
        events = 0
        while (each := self._peek()) is not None:
            is_event = each.event is not None
            if is_event and events == most:
                self.more = True
                return found
            self._next = None
            self.reached = each.position
            found.append(each)
            events += is_event
        return found

    def take_at_once(self, most: int) -> list[Found]:
        """Up to `most` further events, or EOSE alone: it comes when all stored events have arrived,
        and before any later one leaves."""
        found: list[Found] = []
        while len(found) < most and (each := self._peek()) is not None:
            if each.is_eose and found:
                break
            self._next = None
            self.reached = each.position
            found.append(each)
            if each.is_eose:
                break
        return found

    def _peek(self) -> Found | None:
        if self._next is None:
            self._next = next(self._entries, None)
        return self._next

    def _all(self, start: Position) -> Iterator[Found]:
        subscription = self._subscription
        eose = live(subscription.since)
        is_due = start < eose or (start == eose and subscription.state is State.PENDING)
        if not start.is_live:
            yield from self._stored(start)
        number = start.number if start.is_live else subscription.since
        if is_due and number < subscription.since:
            # Resumed by a token: entries numbered up to the beginning come before EOSE.
            yield from self._numbered(number, subscription.since)
        if is_due:
            yield Found(eose, None)
        yield from self._numbered(max(number, subscription.since), None)

    def _stored(self, start: Position) -> Iterator[Found]:
        at = start
        while some := backlog_behind(self._backlog, at, self._at_once):
            at = some[-1][0]
            there = self._look_up([event_id for _, event_id in some])
            for position, event_id in some:
                event = there.get(event_id)
                if event is not None and self._visible(event):
                    yield Found(position, event)

    def _look_up(self, ids: Sequence[str]) -> Mapping[str, StoredEvent]:
        if self._known.keys() >= set(ids):
            return self._known
        return self._agent.events.get_many(ids)

    def _numbered(self, since: int, until: int | None) -> Iterator[Found]:
        changes = self._agent.changes
        last = changes.last_number() if until is None else until
        entries = changes.between(since, last, self._author_lists())
        left = self._agent.settings.max_scan
        while some := list(islice(entries, _AT_ONCE)):
            yield from self._matching(some)
            self.reached = max(self.reached, live(some[-1].number))
            left -= len(some)
            if left <= 0 and some[-1].number < last:
                self.more = True
                return
        self.reached = max(self.reached, live(last))

    def _matching(self, entries: Sequence[Change]) -> Iterator[Found]:
        wanted = [entry for entry in entries if self._may_match(entry)]
        for first in range(0, len(wanted), self._at_once):
            some = wanted[first : first + self._at_once]
            there = self._look_up([entry.id for entry in some])
            for entry in some:
                event = there.get(entry.id)
                if event is not None and self._matches(event):
                    yield Found(live(entry.number), event)

    def _may_match(self, entry: Change) -> bool:
        return any(
            (filter.kinds is None or entry.kind in filter.kinds)
            and filter.has_author(entry.pubkey)
            and (filter.ids is None or entry.id in filter.ids)
            for filter in self._subscription.filters
        )

    def _matches(self, found: StoredEvent) -> bool:
        event = found.event
        is_wanted = any(filter.matches(event) for filter in self._subscription.filters)
        return is_wanted and self._visible(found)

    def _author_lists(self) -> list[str] | None:
        authors: set[str] = set()
        for filter in self._subscription.filters:
            if filter.authors is None:
                return None
            authors |= filter.authors
        return sorted(authors) if len(authors) <= _MOST_AUTHOR_LISTS else None


def backlog_for(agent: Agent, subscription: PaidSubscription, start: Position) -> bytes:
    """The stored events of a subscription, if a reading behind this position needs them."""
    return b"" if start.is_live else agent.paid_subscriptions.backlog(subscription)


def start_of(subscription: PaidSubscription, after: Position | None) -> Position:
    """The position behind which a pull continues. Events from before the subscription's beginning
    are not read: they would count as delivered again."""
    account = subscription.account
    start = delivery_start(account.cursor, account.paid_mark, after)
    if subscription.floor.is_live:
        return max(start, subscription.floor)
    if start.is_live and start.number < subscription.since:
        return stored(subscription.stored)
    return start


def _keys_of(subscription: PaidSubscription) -> frozenset[str]:
    pubkey = owner_pubkey(subscription.owner)
    return frozenset() if pubkey is None else frozenset({pubkey})
