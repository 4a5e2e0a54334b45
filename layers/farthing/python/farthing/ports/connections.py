"""The port through which frames reach clients. API Gateway and the local server are its sides."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol, runtime_checkable


class NumberedFrame(ABC):
    """A frame that is written when its turn has come, because it bears the number of its turn."""

    size: int  # about so many octets

    @abstractmethod
    def write(self) -> str | bytes | None:
        """Text, or octets for a binary frame. None if its receiver is gone. Call it once."""


# Octets travel as a binary frame, which exists on one machine only.
Frame = str | bytes | NumberedFrame


class Delivery(StrEnum):
    DELIVERED = "delivered"
    GONE = "gone"  # the client has left: forget the connection
    SLOW = "slow"  # the client does not keep up, even after waiting
    TOO_LARGE = "too large"  # no frame of this size can be sent
    BUSY = "busy"  # the way to clients takes no more for now; the client is not at fault


class Connections(Protocol):
    # Whether the frame that a handler returns reaches the client, by whatever route it was called.
    # API Gateway returns one on some routes only: a route that may return one returns an empty
    # frame where the handler has none.
    carries_replies: bool

    def post(self, connection_id: str, frames: Iterable[Frame]) -> Delivery:
        """Send frames that stored events travel in: of many, a side may swap neighbours to gain
        speed. All have been taken when it returns. The worst thing that happened to any of them."""
        ...

    def post_in_order(
        self, connection_id: str, frames: Iterable[Frame], *, live: bool = False
    ) -> Delivery:
        """The same, where the order matters. What is `live` goes to many clients one after another:
        none is waited for at length."""
        ...

    def post_each(self, frames: Iterable[tuple[str, Frame]]) -> dict[str, Delivery]:
        """Send (connection id, frame) pairs: side by side to several connections, in order to
        each one. What became of every connection that did not simply take its frames."""
        ...

    def close(self, connection_id: str) -> None: ...


@runtime_checkable
class CountedConnections(Protocol):
    """A side that knows how many clients are connected: that of one machine."""

    def __len__(self) -> int: ...
