"""The port through which recipients of an event are left to later calls: those that one call has no
time for, and those that could not be reached just now."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Part(NamedTuple):
    """Some of an event's recipients, by the places at which their subscriptions stand."""

    destination: str  # the kind of destination that they are
    event: str  # as JSON: an ephemeral event is stored nowhere
    places: Sequence[str]
    attempt: int = 0  # how often these recipients could not be reached


class RecipientQueue(Protocol):
    # Recipients that one call serves by itself, and that one part has at most.
    most_at_once: int

    def put(self, parts: Sequence[Part]) -> None:
        """Have each part delivered by a call of its own, soon; later after a failed attempt."""
        ...


class NoRecipientQueue:
    """One machine serves all recipients at once, and none of them waits for a gateway."""

    most_at_once = 2**63

    def put(self, parts: Sequence[Part]) -> None:
        raise NotImplementedError("this agent delivers to all recipients by itself")
