"""The port for reading other relays, as a client of theirs. Nothing that comes back is checked."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Filter = Mapping[str, Any]


class RelayFailed(Exception):
    """The relay cannot be reached, or does not answer as a relay does."""


class ReadLimits(NamedTuple):
    """What one answer of a relay may cost us."""

    events: int
    octets: int  # of all frames together
    seconds: float


class Relays(Protocol):
    def read(self, url: str, filters: Sequence[Filter], limits: ReadLimits) -> Iterator[Any]:
        """Stored events as they come, until the relay has sent all of them or a limit is reached.
        RelayFailed if the relay does not answer."""
        ...


class NoRelays:
    def read(self, url: str, filters: Sequence[Filter], limits: ReadLimits) -> Iterator[Any]:
        raise RelayFailed("this agent reads no other relays")
