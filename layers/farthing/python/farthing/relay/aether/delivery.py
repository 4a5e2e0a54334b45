"""New Aether events to sockets: in the form in which each subscription was opened. This module
loads quickly: the code that writes frames is imported with the first frame."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from farthing.context import Agent
from farthing.relay.destination import Destination, Source
from farthing.relay.socket_delivery import send_frames
from farthing.store.subscriptions import AETHER_EVENTS, Subscription

if TYPE_CHECKING:
    from farthing.aether.events import Event


def _deliver(
    agent: Agent, wanting: "Sequence[tuple[Event, Subscription]]"
) -> "list[tuple[Event, str]]":
    from farthing.relay.aether.event_frames import frame_of

    json = cache(_json)
    return send_frames(agent, wanting, lambda event, each: frame_of(agent, each, json(event)))


def _json(event: "Event") -> str:
    return event.to_json()


AETHER_SOCKETS = Destination(
    "Aether socket",
    Source.STORED,
    AETHER_EVENTS.index,
    lambda agent, places: agent.subscriptions.open_at(places),
    _deliver,
    in_parts=True,
    opened_after=lambda subscription: subscription.after,
    hints=lambda agent: agent.subscriptions,
)
