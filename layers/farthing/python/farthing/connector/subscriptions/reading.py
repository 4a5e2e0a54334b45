"""What a subscription gets behind a position, in its order: stored events, EOSE, the numbered log.

Nothing is kept for each event. The log is read from the position on, as far as it reaches now.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from farthing.btp_nips.identity import owner_pubkey
from farthing.btp_nips.lifecycle import State, delivery_start
from farthing.btp_nips.positions import Position, backlog_behind, backlog_size, live, stored
from farthing.context import Agent
from farthing.relay.visibility import is_visible
from farthing.store.changes import Change
from farthing.store.events import StoredEvent
from farthing.store.paid_subscriptions import PaidSubscription

_AT_ONCE: Final = 100
# Above this many authors the log itself is read, and authors are told apart on its entries.
_MOST_AUTHOR_LISTS: Final = 100


class Found(NamedTuple):
    """What stands at a position: an event, or EOSE where there is none."""

    position: Position
    event: StoredEvent | None

    @property
    def is_eose(self) -> bool:
        return self.event is None


class Reading:
    """Reads on from a position. `reached` is how far it has looked: what was passed over matches no
    filter, or is no longer there. `more` says that it stopped before the end."""

    def __init__(
        self, agent: Agent, subscription: PaidSubscription, backlog: bytes, start: Position
    ) -> None:
        self._agent = agent
        self._subscription = subscription
        self._backlog = backlog
        self._pubkeys = _keys_of(subscription)
        self.reached = start
        self.more = False
        self._entries = self._all(start)
        self._next: Found | None = None

    def take(self, most: int) -> list[Found]:
        """Up to so many events more, and EOSE with them where it comes next."""
        found: list[Found] = []
        events = 0
        while (each := self._peek()) is not None:
            if not each.is_eose and events == most:
                self.more = True
                return found
            self._next = None
            self.reached = each.position
            found.append(each)
            events += not each.is_eose
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
            # Resumed by a token: what is numbered up to the beginning comes before EOSE.
            yield from self._numbered(number, subscription.since)
        if is_due:
            yield Found(eose, None)
        yield from self._numbered(max(number, subscription.since), None)

    def _stored(self, start: Position) -> Iterator[Found]:
        entries = iter(backlog_behind(self._backlog, start, backlog_size(self._backlog)))
        while some := list(islice(entries, _AT_ONCE)):
            there = self._agent.events.get_many(event_id for _, event_id in some)
            for position, event_id in some:
                event = there.get(event_id)
                if event is not None and is_visible(event.event, self._pubkeys):
                    yield Found(position, event)

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
        if not wanted:
            return
        there = self._agent.events.get_many(entry.id for entry in wanted)
        for entry in wanted:
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
        return is_wanted and is_visible(event, self._pubkeys)

    def _author_lists(self) -> list[str] | None:
        authors: set[str] = set()
        for filter in self._subscription.filters:
            if filter.authors is None:
                return None
            authors |= filter.authors
        return sorted(authors) if len(authors) <= _MOST_AUTHOR_LISTS else None


def start_of(subscription: PaidSubscription, after: Position | None) -> Position:
    """The position behind which a pull goes on. What never was the subscription's own to deliver is
    not read, for it would count as delivered again."""
    start = delivery_start(subscription.account.cursor, after)
    if subscription.floor.is_live:
        return max(start, subscription.floor)
    if start.is_live and start.number < subscription.since:
        return stored(subscription.stored)
    return start


def _keys_of(subscription: PaidSubscription) -> frozenset[str]:
    pubkey = owner_pubkey(subscription.owner)
    return frozenset() if pubkey is None else frozenset({pubkey})
