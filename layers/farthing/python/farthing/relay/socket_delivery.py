"""Frames to sockets: new events to the subscriptions of REQ, and the consequences of what became of
frames on their way. To nobody who must not see an event."""

from collections.abc import Iterable, Sequence
from functools import cache

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.nostr.messages import event_frame
from farthing.ports.connections import Delivery
from farthing.ports.meter import Metric
from farthing.relay.destination import Destination, Source
from farthing.relay.visibility import is_visible
from farthing.store.subscriptions import EVENTS, Subscription


def _deliver(agent: Agent, wanting: Sequence[tuple[Event, Subscription]]) -> None:
    recipients = [
        (event, subscription)
        for event, subscription in wanting
        if _may_see(agent, event, subscription)
    ]
    if recipients:
        json = cache(Event.to_json)
        # Made as they go out: all at once, they would take the memory of every client's copy.
        frames = (
            (subscription.connection_id, event_frame(subscription.id, json(event)))
            for event, subscription in recipients
        )
        agent.meter.count(Metric.EVENTS_DELIVERED, len(recipients))
        settle_deliveries(agent, agent.connections.post_each(frames).items())


def _may_see(agent: Agent, event: Event, subscription: Subscription) -> bool:
    if event.kind not in PRIVATE_KINDS:
        return True
    # Looked up only here: few events are private, and who is authenticated may have changed.
    connection = agent.sessions.get(subscription.connection_id)
    return connection is not None and is_visible(event, connection.pubkeys)


def settle_deliveries(agent: Agent, deliveries: Iterable[tuple[str, Delivery]]) -> None:
    """Draw the consequences of what became of frames on their way to clients."""
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


SOCKETS = Destination(
    "socket",
    Source.STORED,
    EVENTS.index,
    lambda agent, places: agent.subscriptions.open_at(places),
    _deliver,
)
