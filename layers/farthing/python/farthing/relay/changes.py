"""CHANGES (NIP-CF): stored events by number, then live events, in order and each once.

One caller at a time serves a live subscription and holds its cursor: first the handler of the
request, then the handlers of new entries. A caller that finds the cursor held marks it: there is
more to send. The holder checks this mark before it releases the cursor. So no entry is left out,
sent twice or sent out of order.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.feed import (
    ChangesFilter,
    change_frame,
    changes_eose,
    changes_error,
    parse_changes_filter,
)
from farthing.nostr.filters import InvalidFilter
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.nostr.messages import ClientMessage, Prefix, Refused, check_subscription_id
from farthing.ports.connections import Delivery
from farthing.relay.caller import Caller
from farthing.relay.destination import Destination, Source
from farthing.relay.effort import Effort
from farthing.relay.opening import Overtaken, TooManySubscriptions
from farthing.relay.socket_delivery import BUSY, settle_deliveries
from farthing.relay.subscribe import open_subscription
from farthing.relay.visibility import check_readable, is_visible
from farthing.store.changes import Change
from farthing.store.cursors import Cursor, Lease
from farthing.store.subscriptions import CHANGES, Subscription, request_order

_AT_ONCE = 100
# With more authors than this, the whole log is read, and its entries are filtered by author.
_MOST_AUTHOR_LISTS = 100
# Longer than the life of any handler: a cursor that is held longer was left by a crash.
_LEASE_MS = 60_000


def changes(agent: Agent, caller: Caller, message: ClientMessage) -> str | None:
    subscription_id = message.subscription_id()
    try:
        check_subscription_id(subscription_id)
    except Refused:
        return changes_error(subscription_id, "invalid subscription id")
    order = request_order(caller.time_ms)
    try:
        wanted = _parse(agent, message)
        subscription = Subscription(
            caller.connection_id, subscription_id, order, (wanted.events,), CHANGES
        )
        answer = _go_live if wanted.live else _answer_once
        return answer(agent, caller, subscription, wanted)
    except Overtaken:
        return None  # a later message replaces this one, and only the later one is answered
    except Exception as error:
        # ERR is about to be sent: no entry may come after it.
        agent.subscriptions.unsubscribe(caller.connection_id, subscription_id, order + 1, agent.now)
        if isinstance(error, InvalidFilter):
            return changes_error(subscription_id, "invalid filter")
        if isinstance(error, TooManySubscriptions):
            return changes_error(subscription_id, "too many subscriptions")
        raise


def _parse(agent: Agent, message: ClientMessage) -> ChangesFilter:
    wanted = parse_changes_filter(message.parts[1] if len(message.parts) == 2 else None)
    if wanted.events.value_count() > agent.settings.max_filter_values:
        raise InvalidFilter("too many values")
    return wanted


def _answer_once(
    agent: Agent, caller: Caller, subscription: Subscription, wanted: ChangesFilter
) -> str | None:
    # An open subscription with this id ends, as with any request: two would mix up their numbers.
    connection, in_force = agent.engine.together(
        caller.arrive,
        lambda: agent.subscriptions.unsubscribe(
            subscription.connection_id, subscription.id, subscription.order, agent.now
        ),
    )
    if not in_force:
        raise Overtaken
    check_readable(subscription.filters, connection.pubkeys)
    answer = _Answer(agent, subscription, wanted.since)
    with answer.begin(connection.pubkeys):
        return answer.send(wanted.limit)


def _go_live(
    agent: Agent, caller: Caller, subscription: Subscription, wanted: ChangesFilter
) -> str | None:
    # The cursor is held before another caller could send an entry.
    cursor: Cursor
    _, cursor = agent.engine.together(
        caller.arrive,
        lambda: agent.cursors.begin(subscription, wanted.since, _lease(agent)),
    )
    pubkeys = open_subscription(agent, caller, subscription)
    answer = _Answer(agent, subscription, wanted.since)
    with answer.begin(pubkeys):
        end = answer.send(wanted.limit)
    if end is None or not answer.post(end):
        return None
    number = max(answer.last, wanted.since)
    if agent.cursors.leave(subscription, cursor._replace(number=number)):
        push(agent, subscription)
    return None


def push(agent: Agent, subscription: Subscription) -> None:
    """Send a live subscription the entries that it has not received yet."""
    while (cursor := agent.cursors.take(subscription, _lease(agent))) is not None:
        answer = _Answer(agent, subscription, cursor.number, live=True)
        try:
            connection = agent.sessions.get(subscription.connection_id)
            if connection is None or not agent.subscriptions.is_open(subscription):
                return
            answer.begin(connection.pubkeys)
            if not answer.send_rest():
                return
        except Exception:
            # The next attempt continues behind the last entry sent.
            agent.cursors.leave(subscription, cursor._replace(number=answer.reached))
            raise
        told = agent.cursors.leave(subscription, cursor._replace(number=answer.reached))
        if not told and answer.reached >= answer.last:
            return


def _push_each(
    agent: Agent, wanting: Sequence[tuple[Event, Subscription]]
) -> Sequence[tuple[Event, str]]:
    """Serve the subscriptions that match the events. The entries themselves are read from the
    log."""
    interested = {
        (subscription.connection_id, subscription.id): subscription for _, subscription in wanting
    }
    failures = []
    for subscription in interested.values():
        try:
            push(agent, subscription)
        except Exception as failure:  # a failure does not stop the other subscriptions
            failures.append(failure)
    if failures:
        raise ExceptionGroup("some live subscriptions did not receive their entries", failures)
    return ()  # an unreachable subscription's cursor keeps its position


LIVE_CHANGES = Destination(
    "live changes",
    Source.NUMBERED,
    CHANGES.index,
    lambda agent, places: agent.subscriptions.open_at(places),
    _push_each,
    hints=lambda agent: agent.subscriptions,
)


def _lease(agent: Agent) -> Lease:
    return Lease(agent.now_ms, agent.now_ms + _LEASE_MS)


class _Answer:
    """Entries on their way to one subscription.

    `last` is the log's highest number at the beginning, and `reached` the number up to which all
    entries were sent.
    """

    def __init__(
        self, agent: Agent, subscription: Subscription, since: int, *, live: bool = False
    ) -> None:
        self._agent = agent
        self._live = live
        self._subscription = subscription
        self._filter = subscription.filters[0]
        self._since = since
        self.reached = since

    def begin(self, pubkeys: frozenset[str]) -> Effort:
        """Take the snapshot to send, for a client that is authenticated as these keys. The returned
        effort must be closed with the answer."""
        self._pubkeys = pubkeys
        self._scanned = 0
        self._effort = Effort(self._agent, self._agent.settings.changes_seconds)
        self.last = self._agent.changes.last_number()
        return self._effort

    def send(self, limit: int | None) -> str | None:
        """Send the entries of the log. Returns the final EOSE, or None if the client is gone."""
        most = None if limit is None else min(limit, self._agent.settings.max_limit)
        sent, last_sent = 0, self._since
        for some in self._batches():
            for number, frame in self._frames(some):
                if sent == most:
                    return self._truncated(last_sent)
                if not self.post(frame):
                    return None
                sent, last_sent = sent + 1, number
            if self._is_enough(some[-1].number):
                return self._truncated(some[-1].number)
        return changes_eose(self._subscription.id, self.last)

    def _truncated(self, at: int) -> str:
        return changes_eose(self._subscription.id, self.last, at)

    def _is_enough(self, number: int) -> bool:
        """Whether the answer has reached its limit of cost while entries behind this number are
        left."""
        if number >= self.last:
            return False
        too_long = self._scanned >= self._agent.settings.max_scan
        return too_long or self._effort.is_over_time or not self._may_go_on()

    def _may_go_on(self) -> bool:
        """Whether a large answer gets a place in the slow lane. If not, the client continues later
        from the end of the answer."""
        if self._live or self._scanned < self._agent.settings.light_scan:
            return True
        try:
            self._effort.become_large()
        except Refused:
            return False
        return True

    def send_rest(self) -> bool:
        """Send the rest, or as much as there is time for; False if the client is gone."""
        for some in self._batches():
            for number, frame in self._frames(some):
                if not self.post(frame):
                    return False
                self.reached = number
            self.reached = some[-1].number
            if self._is_enough(self.reached):
                return True
        self.reached = max(self.reached, self.last)
        return True

    def _batches(self) -> Iterator[list[Change]]:
        authors = self._filter.authors
        few = authors is not None and len(authors) <= _MOST_AUTHOR_LISTS
        entries = self._agent.changes.between(
            self._since, self.last, sorted(authors or ()) if few else None
        )
        while some := list(islice(entries, _AT_ONCE)):
            self._scanned += len(some)
            yield some

    def _frames(self, entries: Sequence[Change]) -> list[tuple[int, str]]:
        """(number, frame) of the entries whose events match and are still stored."""
        wanted = [entry for entry in entries if self._may_match(entry)]
        stored = self._agent.events.get_many(entry.id for entry in wanted)
        frames = []
        for entry in wanted:
            event = stored.get(entry.id)
            if event is None:  # deleted or replaced meanwhile
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

    def post(self, frame: str) -> bool:
        """Post one frame. Frames are posted one by one, so that after a failure the last position
        is known."""
        agent, connection_id = self._agent, self._subscription.connection_id
        delivery = agent.connections.post_in_order(connection_id, [frame], live=self._live)
        settle_deliveries(agent, [(connection_id, delivery)])
        # A client that has asked for changes is told. A live feed continues from here later.
        if delivery is Delivery.BUSY:
            raise Refused(Prefix.ERROR, BUSY)
        return delivery not in (Delivery.GONE, Delivery.SLOW)
