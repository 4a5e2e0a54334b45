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


class Meter(Protocol):
    def count(self, metric: Metric, number: int = 1) -> None: ...


class NoMeter:
    def count(self, metric: Metric, number: int = 1) -> None:
        pass
