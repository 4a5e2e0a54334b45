"""The port for reading other relays, as a client of theirs."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Filter = Mapping[str, Any]


class RelayFailed(Exception):
    """The relay cannot be reached, or does not answer as a relay does."""


class Relays(Protocol):
    def read(self, url: str, filters: Sequence[Filter], most: int, seconds: float) -> list[Any]:
        """What a relay has stored, as it came: nothing is checked. At most `most` events, within
        `seconds`; RelayFailed if it does not answer."""
        ...


class NoRelays:
    def read(self, url: str, filters: Sequence[Filter], most: int, seconds: float) -> list[Any]:
        raise RelayFailed("this agent reads no other relays")
