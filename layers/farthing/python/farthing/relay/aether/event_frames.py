"""The frame that brings an Aether event to one subscription."""

import orjson

from farthing.aether import messages
from farthing.aether.events import known_event
from farthing.aether.gateway import for_nostr
from farthing.context import Agent
from farthing.nostr.messages import event_frame
from farthing.ports.connections import Frame
from farthing.relay.aether.channel import ID_PREFIX, NOSTR_FORM, Channel
from farthing.store.subscriptions import Subscription


def frame_of(agent: Agent, subscription: Subscription, json: str) -> Frame:
    if subscription.form == NOSTR_FORM:
        return nostr_frame(subscription.id, json)
    message = messages.event(subscription.id.removeprefix(ID_PREFIX), json)
    channel = Channel.of_form(subscription.form)
    return channel.frame(agent, subscription.connection_id, message)


def nostr_frame(subscription_id: str, json: str) -> str:
    """An EVENT for a Nostr client that has asked for Aether events."""
    return event_frame(subscription_id, orjson.dumps(for_nostr(known_event(json))).decode())
