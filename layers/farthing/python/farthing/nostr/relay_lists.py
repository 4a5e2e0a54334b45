"""Relay lists (NIP-65, kind 10002): where an author writes, and where an author reads."""

from farthing.nostr.events import Event


def write_relays(event: Event) -> list[str]:
    """Where the author's own events are found."""
    return _relays(event, "write")


def read_relays(event: Event) -> list[str]:
    """Where the author looks for events that mention it."""
    return _relays(event, "read")


def _relays(event: Event, marker: str) -> list[str]:
    """In the order of the list, each once. A relay without a marker is for both."""
    return list(
        dict.fromkeys(
            tag[1]
            for tag in event.tags
            if len(tag) > 1 and tag[0] == "r" and (len(tag) == 2 or tag[2] in ("", marker))
        )
    )
