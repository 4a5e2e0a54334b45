"""The port that wakes a paid subscription: soon after a wake, a worker delivers the events that the
subscription has not received. A wake may come twice, because the worker finds out itself what to
deliver."""

from typing import Protocol

import orjson


class Wakes(Protocol):
    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        """Deliver to a subscription after `delay` seconds."""
        ...


class NoWakes:
    """For an agent that never delivers by push."""

    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        pass


def write_wake(owner: str, subscription_id: str) -> str:
    """A wake as a message for the queue."""
    return orjson.dumps([owner, subscription_id]).decode()


def read_wake(body: str) -> tuple[str, str]:
    """The owner and id in a wake. Raises ValueError for any other text."""
    wake = orjson.loads(body)
    if type(wake) is not list or len(wake) != 2 or not all(type(each) is str for each in wake):
        raise ValueError("expected an owner and the id of a subscription")
    return wake[0], wake[1]
