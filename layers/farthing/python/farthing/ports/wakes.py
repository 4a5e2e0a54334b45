"""The port through which a paid subscription is woken: soon after, somebody delivers to it what it
has not had yet. A wake may come twice, and never too often: whoever delivers looks for itself."""

from typing import Protocol


class Wakes(Protocol):
    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        """Have a subscription served, so many seconds from now."""
        ...


class NoWakes:
    """An agent that never delivers by push."""

    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        pass
