"""The port that sends frames to clients, through API Gateway or by the local server."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol, runtime_checkable


class NumberedFrame(ABC):
    """A frame that is written only when it is sent, because it has a number in the order of
    sending."""

    size: int  # the approximate number of octets

    @abstractmethod
    def write(self) -> str | bytes | None:
        """The frame: text, or octets for a binary frame. None if the receiver is gone. Call this
        once."""


class Binary(bytes):
    """A binary frame: on one machine only."""


# Octets that are not `Binary` are text in UTF-8.
Frame = str | bytes | NumberedFrame


class Delivery(StrEnum):
    DELIVERED = "delivered"
    GONE = "gone"  # the client has left: forget the connection
    SLOW = "slow"  # the client does not keep up, even after waiting
    TOO_LARGE = "too large"  # no frame of this size can be sent
    BUSY = "busy"  # the queue to clients is full for now; the client is not at fault


class Connections(Protocol):
    # Whether the frame that a handler returns reaches the client on every route. API Gateway
    # returns a frame on some routes only: such a route sends an empty frame if the handler returns
    # none.
    carries_replies: bool
    # Whether one frame can fail and the next one to the same client can succeed. If not, frames for
    # one client are posted together.
    frames_fail_alone: bool

    def post(self, connection_id: str, frames: Iterable[Frame]) -> Delivery:
        """Send frames with stored events. If there are many, neighbours may swap places to gain
        speed. Returns when all are sent, with the worst outcome of any of them."""
        ...

    def post_in_order(
        self, connection_id: str, frames: Iterable[Frame], *, live: bool = False
    ) -> Delivery:
        """Send frames strictly in order. With `live`, the same event goes to many clients one after
        another, so a slow client is not waited for at length."""
        ...

    def post_each(self, frames: Iterable[tuple[str, Frame]]) -> dict[str, Delivery]:
        """Send (connection id, frame) pairs: to several connections in parallel, to each one in
        order. Returns the outcome of each connection that did not accept all its frames."""
        ...

    def close(self, connection_id: str) -> None: ...


@runtime_checkable
class CountedConnections(Protocol):
    """Connections on one machine, whose number is known."""

    def __len__(self) -> int: ...
