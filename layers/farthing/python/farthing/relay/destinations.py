"""Every kind of destination that subscriptions deliver to. Fan-out reads this one list."""

from collections.abc import Iterator
from typing import Any

from farthing.relay.aether.delivery import AETHER_SOCKETS
from farthing.relay.changes import LIVE_CHANGES
from farthing.relay.destination import Destination, Source
from farthing.relay.paid_delivery import PAID
from farthing.relay.socket_delivery import SOCKETS
from farthing.store.spaces import Space

DESTINATIONS: tuple[Destination[Any, Any], ...] = (
    SOCKETS,
    LIVE_CHANGES,
    AETHER_SOCKETS,
    PAID,
)


def destinations_of(space: Space[Any], source: Source) -> Iterator[Destination[Any, Any]]:
    return (each for each in DESTINATIONS if each.index.space is space and each.source is source)
