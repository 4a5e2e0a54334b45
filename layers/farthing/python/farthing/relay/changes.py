"""CHANGES (NIP-CF): stored events by their numbers, and then live, in order, each once.

A live subscription is served by one caller at a time, who holds its cursor: first the one that
answers the request, then whoever brings new entries. Who finds the cursor held leaves word, and the
holder looks again before it goes. So nothing is left out and nothing is sent twice or out of order.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from farthing.agent import Agent
from farthing.nostr.events import Event
from farthing.nostr.feed import (
    ChangesFilter,
    change_frame,
    changes_eose,
    changes_error,
    parse_changes_filter,
)
from farthing.nostr.filters import Filter, InvalidFilter
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.nostr.messages import ClientMessage, Refused, check_subscription_id
from farthing.relay.caller import Caller
from farthing.relay.connections import Delivery
from farthing.relay.fan_out import settle_deliveries
from farthing.relay.subscribe import Overtaken, TooManySubscriptions, open_subscription
from farthing.relay.visibility import is_visible
from farthing.store.changes import Change
from farthing.store.sessions import Cursor, Feed, Lease, Subscription, request_order

_AT_ONCE = 100
# Above this many authors the log itself is read, and authors are told apart on its entries.
_MOST_AUTHOR_LISTS = 100
# Longer than any handler lives: a cursor that is still held then was left by a crash.
_LEASE_MS = 60_000


def changes(agent: Agent, caller: Caller, message: ClientMessage) -> str | None:
    subscription_id = message.subscription_id()
    try:
        check_subscription_id(subscription_id)
    except Refused:
        return changes_error(subscription_id, "invalid subscription id")
    wanted = _parse(agent, message)
    if wanted is None:
        return changes_error(subscription_id, "invalid filter")
    subscription = Subscription(
        caller.connection_id,
        subscription_id,
        request_order(caller.time_ms),
        (wanted.events,),
        Feed.CHANGES,
    )
    if not wanted.live:
        pubkeys = caller.arrive().pubkeys
        return _Answer(agent, subscription, pubkeys).send(wanted)
    return _go_live(agent, caller, subscription, wanted)


def _parse(agent: Agent, message: ClientMessage) -> ChangesFilter | None:
    try:
        wanted = parse_changes_filter(message.parts[1] if len(message.parts) == 2 else None)
    except InvalidFilter:
        return None
    fits = wanted.events.value_count() <= agent.settings.max_filter_values
    return wanted if fits else None


def _go_live(
    agent: Agent, caller: Caller, subscription: Subscription, wanted: ChangesFilter
) -> str | None:
    # Held from before the first moment at which anyone could bring an entry.
    agent.sessions.begin_cursor(subscription, wanted.since, _lease(agent))
    try:
        pubkeys = open_subscription(agent, caller, subscription)
        answer = _Answer(agent, subscription, pubkeys)
        end = answer.send(wanted)
        if end is None or not answer.post([end]):
            return None
    except Overtaken:
        return None
    except TooManySubscriptions:
        _give_up(agent, subscription)
        return changes_error(subscription.id, "too many subscriptions")
    except Exception:
        _give_up(agent, subscription)
        raise
    if agent.sessions.leave_cursor(subscription, Cursor(max(answer.last, wanted.since))):
        push(agent, subscription)
    return None


def _give_up(agent: Agent, subscription: Subscription) -> None:
    agent.sessions.unsubscribe(
        subscription.connection_id, subscription.id, subscription.order + 1, agent.now
    )


def push(agent: Agent, subscription: Subscription) -> None:
    """Send a live subscription what it has not had yet."""
    while True:
        cursor = agent.sessions.take_cursor(subscription, _lease(agent))
        if cursor is None or not agent.sessions.is_open(subscription):
            return
        connection = agent.sessions.get(subscription.connection_id)
        if connection is None:
            return
        try:
            answer = _Answer(agent, subscription, connection.pubkeys)
            last = max(cursor.number, answer.last)
            if not answer.send_between(cursor.number, last):
                return
        except Exception:
            agent.sessions.leave_cursor(subscription, cursor)  # for whoever tries again
            raise
        if not agent.sessions.leave_cursor(subscription, Cursor(last, cursor.told)):
            return


def push_changes(agent: Agent, entries: Sequence[Change]) -> None:
    """Bring new entries of the log to the live subscriptions that want them."""
    stored = agent.events.get_many(entry.id for entry in entries)
    events: list[Event] = [event.event for event in stored.values()]
    interested = {
        (subscription.connection_id, subscription.id): subscription
        for _, subscription in agent.sessions.interested(events, Feed.CHANGES)
    }
    for subscription in interested.values():
        push(agent, subscription)


def _lease(agent: Agent) -> Lease:
    return Lease(agent.now_ms, agent.now_ms + _LEASE_MS)


class _Answer:
    """Entries on their way to one subscription. `last` is the log's maximum as it began."""

    def __init__(self, agent: Agent, subscription: Subscription, pubkeys: frozenset[str]) -> None:
        self._agent = agent
        self._subscription = subscription
        self._pubkeys = pubkeys
        self._filter: Filter = subscription.filters[0]
        self._scanned = 0
        self.last = agent.changes.last_number()

    def send(self, wanted: ChangesFilter) -> str | None:
        """Send what is in the log; the EOSE that ends it, None if the client is gone."""
        settings = self._agent.settings
        limit = None if wanted.limit is None else min(wanted.limit, settings.max_limit)
        deadline = self._agent.clock() + settings.changes_seconds
        sent = 0
        for some in self._batches(wanted.since, self.last):
            frames = self._frames(some)
            if limit is not None and sent + len(frames) > limit:
                frames = frames[: limit - sent]
                at = frames[-1][0] if frames else self._before(some, wanted.since)
                return self._cut(frames, at)
            if not self.post([frame for _, frame in frames]):
                return None
            sent += len(frames)
            behind = some[-1].number
            if self._is_enough(deadline, behind):
                return changes_eose(self._subscription.id, self.last, behind)
        return changes_eose(self._subscription.id, self.last)

    def _cut(self, frames: Sequence[tuple[int, str]], at: int) -> str | None:
        """End an answer whose limit is reached, behind the last entry that it holds."""
        if not self.post([frame for _, frame in frames]):
            return None
        return changes_eose(self._subscription.id, self.last, at)

    @staticmethod
    def _before(some: Sequence[Change], since: int) -> int:
        return max(since, some[0].number - 1)

    def _is_enough(self, deadline: float, behind: int) -> bool:
        too_long = self._scanned >= self._agent.settings.max_scan
        return behind < self.last and (too_long or self._agent.clock() > deadline)

    def send_between(self, since: int, last: int) -> bool:
        """Send the entries of a range; False if the client is gone."""
        return all(
            self.post([frame for _, frame in self._frames(some)])
            for some in self._batches(since, last)
        )

    def _batches(self, since: int, last: int) -> Iterator[list[Change]]:
        authors = self._filter.authors
        few = authors is not None and len(authors) <= _MOST_AUTHOR_LISTS
        entries = self._agent.changes.between(since, last, sorted(authors or ()) if few else None)
        while some := list(islice(entries, _AT_ONCE)):
            self._scanned += len(some)
            yield some

    def _frames(self, entries: Sequence[Change]) -> list[tuple[int, str]]:
        """(number, frame) of those that match and are still stored."""
        wanted = [entry for entry in entries if self._may_match(entry)]
        stored = self._agent.events.get_many(entry.id for entry in wanted)
        frames = []
        for entry in wanted:
            event = stored.get(entry.id)
            if event is None:  # deleted or replaced since
                continue
            if self._filter.tags and not self._filter.matches_tags(event.event):
                continue
            if entry.kind in PRIVATE_KINDS and not is_visible(event.event, self._pubkeys):
                continue
            frame = change_frame(self._subscription.id, entry.number, event.json)
            frames.append((entry.number, frame))
        return frames

    def _may_match(self, entry: Change) -> bool:
        filter = self._filter
        if filter.kinds is not None and entry.kind not in filter.kinds:
            return False
        return filter.authors is None or entry.pubkey in filter.authors

    def post(self, frames: Sequence[str]) -> bool:
        if not frames:
            return True
        agent, connection_id = self._agent, self._subscription.connection_id
        delivery = agent.connections.post_in_order(connection_id, frames)
        settle_deliveries(agent, [(connection_id, delivery)])
        return delivery not in (Delivery.GONE, Delivery.SLOW)
