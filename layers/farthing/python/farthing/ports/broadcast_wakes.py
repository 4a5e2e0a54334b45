"""The port that wakes the outbox: soon after a wake, a worker attempts the due deliveries of an
event. The ledger has every due delivery and a schedule reads it, so a wake may come twice or be
lost."""

from typing import Protocol

from farthing.nostr.events import is_hex64

# Used in place of an event's id: the owner has published an event.
_NEW = "new"


class BroadcastWakes(Protocol):
    def wake(self, event_id: str, delay: float = 0.0) -> None:
        """Ask a worker to attempt the due deliveries of an event, after `delay` seconds."""
        ...

    def wake_for_new(self) -> None:
        """Ask a worker to broadcast the owner's new events, if the settings say so."""
        ...


class NoBroadcastWakes:
    """For an agent whose thread reads the outbox all the time, or without an outbox."""

    def wake(self, event_id: str, delay: float = 0.0) -> None:
        pass

    def wake_for_new(self) -> None:
        pass


def write_broadcast_wake(event_id: str | None) -> str:
    """A wake as a message for the queue. None means the owner's new events."""
    return event_id or _NEW


def read_broadcast_wake(body: str) -> str | None:
    """Raises ValueError for a message that is not a wake."""
    if body == _NEW:
        return None
    if not is_hex64(body):
        raise ValueError("expected the id of an event")
    return body
