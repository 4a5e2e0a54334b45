"""The port for metrics: numbers that an operator watches. Names are of the domain."""

from enum import StrEnum
from typing import Protocol


class Metric(StrEnum):
    EVENTS_STORED = "EventsStored"
    EVENTS_REFUSED = "EventsRefused"
    EVENTS_DELIVERED = "EventsDelivered"
    FRAMES_TOO_LARGE = "FramesTooLarge"
    CLIENTS_TOO_SLOW = "ClientsTooSlow"
    CONNECTIONS_FORGOTTEN = "ConnectionsForgotten"
    INTERNAL_ERRORS = "InternalErrors"
    PACKETS_FULFILLED = "PacketsFulfilled"
    PACKETS_REJECTED = "PacketsRejected"  # by code
    PACKET_MILLISECONDS = "PacketMilliseconds"
    REVENUE = "Revenue"  # what was paid, overpayment included
    PRICE = "Price"  # what was asked for
    HOLDS_RELEASED = "HoldsReleased"


class Meter(Protocol):
    def count(self, metric: Metric, number: int = 1, code: str = "") -> None:
        """Add to a metric. `code` splits it by an ILP reject code."""
        ...


class NoMeter:
    def count(self, metric: Metric, number: int = 1, code: str = "") -> None:
        pass
