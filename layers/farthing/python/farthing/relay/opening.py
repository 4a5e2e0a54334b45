"""The common part of REQ, live CHANGES and Aether's SUBSCRIBE: saving a subscription, the limits of
open subscriptions, and sending stored events."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from farthing.context import Agent
from farthing.nostr.messages import Prefix, Refused
from farthing.ports.connections import Delivery, Frame
from farthing.relay.caller import Caller
from farthing.relay.effort import Effort
from farthing.relay.socket_delivery import BUSY, settle_deliveries
from farthing.store.planner import ScanTooLong
from farthing.store.sessions import Connection
from farthing.store.subscriptions import Size, Subscription, close_order

_FRAMES_AT_ONCE: Final = 100


class Overtaken(Exception):
    """A later message of the client has closed or replaced this subscription. Only the later
    message is answered."""


class TooManySubscriptions(Refused):
    """The connection has reached its limit of open subscriptions."""

    def __init__(self, why: str) -> None:
        super().__init__(Prefix.ERROR, why)


def save_subscription(
    agent: Agent, caller: Caller, subscription: Subscription, closed: Exception
) -> tuple[Connection, Mapping[str, Size]]:
    """Save the subscription before stored events are read. So an event that arrives in between may
    be sent twice, but is never missed. Raises `closed` if a CLOSE of the same millisecond was sent
    after the request. Returns the caller's connection, and the sizes of its subscriptions."""
    connection, in_force, standing = agent.engine.together(
        caller.arrive,
        lambda: agent.subscriptions.subscribe(subscription, agent.now),
        lambda: agent.subscriptions.sizes(caller.connection_id),
    )
    if in_force > close_order(caller.time_ms):
        raise Overtaken
    if in_force > subscription.order:
        raise closed
    return connection, {**standing, subscription.id: subscription.size}


def check_room(agent: Agent, subscriptions: Mapping[str, Size]) -> None:
    """Check the limits of a connection. An open subscription is stored under every value that leads
    to it."""
    settings = agent.settings
    if len(subscriptions) > settings.max_subscriptions:
        raise TooManySubscriptions(f"expected at most {settings.max_subscriptions} subscriptions")
    if sum(size.values for size in subscriptions.values()) > settings.max_live_values:
        raise TooManySubscriptions(
            f"expected at most {settings.max_live_values} values in subscriptions"
        )
    if sum(size.bytes for size in subscriptions.values()) > settings.max_live_bytes:
        raise TooManySubscriptions(
            f"expected at most {settings.max_live_bytes} bytes of subscriptions"
        )


def send_stored(agent: Agent, connection_id: str, frames: Iterator[Frame], effort: Effort) -> bool:
    """Send frames while further ones are found. Returns whether the client has received all."""
    try:
        while chunk := list(islice(frames, _FRAMES_AT_ONCE)):
            effort.check_time()
            start = agent.clock()
            delivery = agent.connections.post(connection_id, chunk)
            effort.leave_out_since(start)
            settle_deliveries(agent, [(connection_id, delivery)])
            if delivery in (Delivery.GONE, Delivery.SLOW):
                return False
            if delivery is Delivery.BUSY:
                raise Refused(Prefix.ERROR, BUSY)
    except ScanTooLong:
        raise Refused(Prefix.ERROR, "filter is too broad for its limit, narrow it") from None
    return True
