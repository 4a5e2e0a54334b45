"""Visibility of private events: direct messages and gift wraps go only to the keys that they name
(NIP-42)."""

from collections.abc import Callable, Sequence
from typing import Any

from farthing.nostr.events import Event
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.nostr.messages import Prefix, Refused
from farthing.store.events import StoredEvent
from farthing.store.spaces import Wanted


def is_visible(event: Event, pubkeys: frozenset[str]) -> bool:
    """Whether a client that is authenticated as these keys may read the event."""
    if event.kind not in PRIVATE_KINDS:
        return True
    return event.pubkey in pubkeys or any(value in pubkeys for value in event.values("p"))


def visible_to(pubkeys: frozenset[str]) -> Callable[[StoredEvent], bool]:
    """The same check for stored events, which are parsed only if their kind is private."""

    def visible(stored: StoredEvent) -> bool:
        return stored.kind not in PRIVATE_KINDS or is_visible(stored.event, pubkeys)

    return visible


def check_readable(filters: Sequence[Wanted[Any]], pubkeys: frozenset[str]) -> None:
    """Refuse a request for private events alone by a client that is not authenticated."""
    private = any(filter.kinds and filter.kinds <= PRIVATE_KINDS for filter in filters)
    if private and not pubkeys:
        raise Refused(Prefix.AUTH_REQUIRED, "these kinds are only for those they are sent to")
