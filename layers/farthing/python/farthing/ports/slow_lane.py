"""The port through which a large request waits for its turn, so that small ones are not kept
waiting. In the cloud every request has a container of its own, and nobody has to wait."""

from typing import Protocol


class SlowLane(Protocol):
    """A caller that enters also leaves."""

    def enter(self, seconds: float) -> bool:
        """Wait for a place, for so long at most. False if there was none: then there is nothing to
        leave."""
        ...

    def leave(self) -> None: ...


class OpenRoad:
    """A lane in which everybody has a place at once."""

    def enter(self, seconds: float) -> bool:
        del seconds
        return True

    def leave(self) -> None:
        pass
