"""Relay lists (NIP-65, kind 10002): the relays to which an author writes, and from which it
reads."""

from farthing.nostr.events import Event


def write_relays(event: Event) -> list[str]:
    """The relays to which the author writes."""
    return _relays(event, "write")


def read_relays(event: Event) -> list[str]:
    """The relays from which the author reads events that mention it."""
    return _relays(event, "read")


def _relays(event: Event, marker: str) -> list[str]:
    """The relays with this marker, in the order of the list, each once. A relay without a marker is
    for both."""
    return list(
        dict.fromkeys(
            tag[1]
            for tag in event.tags
            if len(tag) > 1 and tag[0] == "r" and (len(tag) == 2 or tag[2] in ("", marker))
        )
    )
