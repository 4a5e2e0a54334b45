"""What REQ, live CHANGES and Aether's SUBSCRIBE share: how much a connection may have open, and
stored events on their way to a client."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from farthing.context import Agent
from farthing.nostr.messages import Prefix, Refused
from farthing.ports.connections import Delivery, Frame
from farthing.relay.effort import Effort
from farthing.relay.socket_delivery import BUSY, settle_deliveries
from farthing.store.planner import ScanTooLong
from farthing.store.subscriptions import Size

_FRAMES_AT_ONCE: Final = 100


class Overtaken(Exception):
    """A later message of the client has closed or replaced what this one asks for. That message is
    answered, and this one is not."""


class TooManySubscriptions(Refused):
    """The connection has as much open as it may."""

    def __init__(self, why: str) -> None:
        super().__init__(Prefix.ERROR, why)


def check_room(agent: Agent, subscriptions: Mapping[str, Size]) -> None:
    """A subscription is kept for as long as it is open, under every value that it is found by."""
    settings = agent.settings
    if len(subscriptions) > settings.max_subscriptions:
        raise TooManySubscriptions(f"more than {settings.max_subscriptions} subscriptions")
    if sum(size.values for size in subscriptions.values()) > settings.max_live_values:
        raise TooManySubscriptions(f"more than {settings.max_live_values} values in subscriptions")
    if sum(size.bytes for size in subscriptions.values()) > settings.max_live_bytes:
        raise TooManySubscriptions(f"more than {settings.max_live_bytes} bytes of subscriptions")


def send_stored(agent: Agent, connection_id: str, frames: Iterator[Frame], effort: Effort) -> bool:
    """Send frames that are found meanwhile. Whether the client has taken them all."""
    try:
        while chunk := list(islice(frames, _FRAMES_AT_ONCE)):
            effort.check_time()
            with effort.sending():
                delivery = agent.connections.post(connection_id, chunk)
            settle_deliveries(agent, [(connection_id, delivery)])
            if delivery in (Delivery.GONE, Delivery.SLOW):
                return False
            if delivery is Delivery.BUSY:
                raise Refused(Prefix.ERROR, BUSY)
    except ScanTooLong:
        raise Refused(Prefix.ERROR, "filter is too broad for its limit, narrow it") from None
    return True
