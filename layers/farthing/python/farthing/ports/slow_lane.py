"""The port in which a large request waits for its turn, so that small requests need not wait. In
the cloud no request waits, because each has a container of its own."""

from typing import Protocol


class SlowLane(Protocol):
    """Every caller that enters must leave."""

    def enter(self, seconds: float) -> bool:
        """Wait for a place, at most for `seconds`. False if there was none: then do not leave."""
        ...

    def leave(self) -> None: ...


class NoSlowLane:
    """For the cloud, where every request gets a place at once."""

    def enter(self, seconds: float) -> bool:
        del seconds
        return True

    def leave(self) -> None:
        pass
