"""The port through which a paid subscription is woken: soon after, somebody delivers to it what it
has not had yet. A wake may come twice, and never too often: whoever delivers looks for itself."""

from typing import Protocol

import orjson


class Wakes(Protocol):
    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        """Have a subscription served, so many seconds from now."""
        ...


class NoWakes:
    """An agent that never delivers by push."""

    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        pass


def write_wake(owner: str, subscription_id: str) -> str:
    """A wake as a message of a queue."""
    return orjson.dumps([owner, subscription_id]).decode()


def read_wake(body: str) -> tuple[str, str]:
    """Raises ValueError for what is no wake."""
    wake = orjson.loads(body)
    if type(wake) is not list or len(wake) != 2 or not all(type(each) is str for each in wake):
        raise ValueError("expected an owner and the id of a subscription")
    return wake[0], wake[1]
