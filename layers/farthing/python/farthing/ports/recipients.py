"""The port that leaves recipients of an event to later calls: those that one call has no time for,
and those that could not be reached."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Part(NamedTuple):
    """Some recipients of an event, by the places of their subscriptions."""

    destination: str  # the kind of destination
    event: str  # as JSON, because an ephemeral event is not stored
    places: Sequence[str]
    attempt: int = 0  # how often these recipients could not be reached


class RecipientQueue(Protocol):
    # The largest number of recipients that one call serves itself, and of one part.
    most_at_once: int

    def put(self, parts: Sequence[Part]) -> None:
        """Have each part delivered by a call of its own: at once, or after a failed attempt with a
        delay."""
        ...


class NoRecipientQueue:
    """For one machine, which serves all recipients at once without a gateway."""

    most_at_once = 2**63

    def put(self, parts: Sequence[Part]) -> None:
        raise NotImplementedError("this agent delivers to all recipients by itself")
