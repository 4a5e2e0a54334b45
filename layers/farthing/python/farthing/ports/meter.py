"""The port for metrics: numbers that an operator watches."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


class Metric(StrEnum):
    """Each metric with what it counts."""

    about: str

    def __new__(cls, name: str, about: str = "") -> "Metric":
        metric = str.__new__(cls, name)
        metric._value_ = name
        metric.about = about
        return metric

    EVENTS_STORED = "EventsStored", "Events stored"
    EVENTS_REFUSED = "EventsRefused", "Events refused"
    EVENTS_DELIVERED = "EventsDelivered", "Events sent to live subscriptions"
    FRAMES_TOO_LARGE = "FramesTooLarge", "Frames not sent because they are too large"
    CLIENTS_TOO_SLOW = "ClientsTooSlow", "Clients disconnected because they read too slowly"
    DELIVERIES_POSTPONED = "DeliveriesPostponed", "Clients not reached because the gateway is busy"
    DELIVERIES_GIVEN_UP = (
        "DeliveriesGivenUp",
        "Events not sent because the gateway stayed busy",
    )
    CONNECTIONS_FORGOTTEN = "ConnectionsForgotten", "Connections found gone while sending"
    INTERNAL_ERRORS = "InternalErrors", "Errors that only the operator can mend"
    PACKETS_FULFILLED = "PacketsFulfilled", "ILP packets fulfilled"
    PACKETS_REJECTED = "PacketsRejected", "ILP packets rejected, by reject code"
    PACKET_MILLISECONDS = "PacketMilliseconds", "Time from an ILP packet to its answer"
    REVENUE = "Revenue", "Amount paid to us, overpayment included, in units of the asset"
    PRICE = "Price", "Amount that we asked for what was paid, in units of the asset"
    HOLDS_RELEASED = "HoldsReleased", "Holds of expired packets that were released"


def metric_namespace(prefix: str) -> str:
    """The namespace of a deployment's metrics in CloudWatch: two deployments do not mix theirs."""
    return prefix.strip("-_./") or "farthing"


class Meter(Protocol):
    def count(self, metric: Metric, number: int = 1, code: str = "") -> None:
        """Add to a metric. `code` splits it by an ILP reject code; the codes
        that ILPv4 does not know are counted together."""
        ...

    def totals(self) -> Mapping[str, int]:
        """The counts since the start, such as `PacketsRejected.F04`. Empty in the cloud, where
        CloudWatch has the counts."""
        ...


class NoMeter:
    def count(self, metric: Metric, number: int = 1, code: str = "") -> None:
        pass

    def totals(self) -> Mapping[str, int]:
        return {}
