"""Frames to sockets: new events for the subscriptions of REQ, and the handling of frames that were
not delivered. Private events go only to clients that may read them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.nostr.messages import event_frame
from farthing.ports.connections import Delivery, Frame
from farthing.ports.meter import Metric
from farthing.relay.destination import Destination, Source
from farthing.relay.visibility import is_visible
from farthing.store.spaces import E
from farthing.store.subscriptions import EVENTS, Subscription

# The answer to a client if the queue to all clients is full.
BUSY = "too many messages are under way to clients, try again"

Write = Callable[[E, Subscription], Frame]


def _deliver(
    agent: Agent, wanting: Sequence[tuple[Event, Subscription]]
) -> list[tuple[Event, str]]:
    json = cache(Event.to_json)
    recipients = [
        (event, subscription)
        for event, subscription in wanting
        if _may_see(agent, event, subscription)
    ]
    return send_frames(
        agent, recipients, lambda event, subscription: event_frame(subscription.id, json(event))
    )


def send_frames(
    agent: Agent, recipients: Sequence[tuple[E, Subscription]], frame: Write[E]
) -> list[tuple[E, str]]:
    """Send each event to its subscription's socket. Returns (event, place) of the deliveries that
    failed because the queue to clients is full. Only these must be tried again."""
    busy: list[tuple[E, Subscription]] = []
    while recipients:
        # If frames can fail alone, each connection gets one at a time: so it is known which failed.
        alone = agent.connections.frames_fail_alone
        now, recipients = _one_each(recipients) if alone else (recipients, ())
        # Frames are made one by one: all at once, they would need the memory of every client's
        # copy.
        frames = (
            (subscription.connection_id, frame(event, subscription)) for event, subscription in now
        )
        troubles = agent.connections.post_each(frames)
        settle_deliveries(agent, troubles.items())
        if sent := len(_among(now, troubles, None)):
            agent.meter.count(Metric.EVENTS_DELIVERED, sent)
        # Later frames to the same client wait behind the failed one, to keep the order.
        busy += _among([*now, *recipients], troubles, Delivery.BUSY)
        # A client whose frame was too large may get the next frame.
        recipients = _among(recipients, troubles, None, Delivery.TOO_LARGE)
    return [(event, subscription.place) for event, subscription in busy]


def _one_each(
    recipients: Sequence[tuple[E, Subscription]],
) -> tuple[list[tuple[E, Subscription]], list[tuple[E, Subscription]]]:
    """The first delivery for each connection, and the rest."""
    seen: set[str] = set()
    first: list[tuple[E, Subscription]] = []
    rest: list[tuple[E, Subscription]] = []
    for each in recipients:
        connection_id = each[1].connection_id
        (rest if connection_id in seen else first).append(each)
        seen.add(connection_id)
    return first, rest


def _among(
    recipients: Iterable[tuple[E, Subscription]],
    troubles: Mapping[str, Delivery],
    *deliveries: Delivery | None,
) -> list[tuple[E, Subscription]]:
    return [each for each in recipients if troubles.get(each[1].connection_id) in deliveries]


def _may_see(agent: Agent, event: Event, subscription: Subscription) -> bool:
    if event.kind not in PRIVATE_KINDS:
        return True
    # The connection is read only here: few events are private, and its authenticated keys may have
    # changed.
    connection = agent.sessions.get(subscription.connection_id)
    return connection is not None and is_visible(event, connection.pubkeys)


def settle_deliveries(agent: Agent, deliveries: Iterable[tuple[str, Delivery]]) -> None:
    """Handle the outcome of frames to clients, for example a connection that is gone."""
    for connection_id, delivery in deliveries:
        match delivery:
            case Delivery.GONE:
                agent.meter.count(Metric.CONNECTIONS_FORGOTTEN)
                agent.sessions.disconnect(connection_id)
            case Delivery.SLOW:
                agent.meter.count(Metric.CLIENTS_TOO_SLOW)
                agent.connections.close(connection_id)
            case Delivery.TOO_LARGE:
                agent.meter.count(Metric.FRAMES_TOO_LARGE)
            case Delivery.BUSY:
                agent.meter.count(Metric.DELIVERIES_POSTPONED)


SOCKETS = Destination(
    "socket",
    Source.STORED,
    EVENTS.index,
    lambda agent, places: agent.subscriptions.open_at(places),
    _deliver,
    in_parts=True,
    opened_after=lambda subscription: subscription.after,
    hints=lambda agent: agent.subscriptions,
)
