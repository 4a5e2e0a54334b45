"""New Aether events to sockets: in the form that each subscription was opened in. This module loads
quickly; what writes the frames is loaded with the first of them."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from farthing.context import Agent
from farthing.ports.meter import Metric
from farthing.relay.destination import Destination, Source
from farthing.relay.socket_delivery import settle_deliveries
from farthing.store.subscriptions import AETHER_EVENTS, Subscription

if TYPE_CHECKING:
    from farthing.aether.events import Event
    from farthing.ports.connections import Frame


def _deliver(agent: Agent, wanting: "Sequence[tuple[Event, Subscription]]") -> None:
    # Made as they go out: all at once, they would take the memory of every client's copy.
    from farthing.relay.aether.event_frames import frame_of

    json = cache(_json)

    def frame(event: "Event", subscription: Subscription) -> "Frame":
        return frame_of(agent, subscription, json(event))

    frames = ((each.connection_id, frame(event, each)) for event, each in wanting)
    agent.meter.count(Metric.EVENTS_DELIVERED, len(wanting))
    settle_deliveries(agent, agent.connections.post_each(frames).items())


def _json(event: "Event") -> str:
    return event.to_json()


AETHER_SOCKETS = Destination(
    "Aether socket",
    Source.STORED,
    AETHER_EVENTS.index,
    lambda agent, places: agent.subscriptions.open_at(places),
    _deliver,
)
