"""The models and the ways of delivery of paid subscriptions, and the bounds that the protocol sets
to settings."""

from enum import StrEnum
from typing import Final

TTL_MIN: Final = 60  # seconds
TTL_MAX: Final = 86400  # seconds
WINDOW_MAX: Final = 10  # packets on their way at once


class Model(StrEnum):
    """How a subscription is paid for."""

    FREE = "free"
    ONE_TIME = "one_time"
    STREAMING = "streaming"
    HYBRID = "hybrid"


class Delivery(StrEnum):
    """How the subscriber gets events."""

    PUSH = "push"  # in packets of ours
    PULL = "pull"  # in the FULFILLs of the subscriber's own packets
