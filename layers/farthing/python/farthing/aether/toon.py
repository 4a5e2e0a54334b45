"""Aether events as TOON text, their form in a packet's data.

The text begins with `event_id:`. The text of a Nostr event never does.
"""

from typing import Final

import toons

from farthing.aether.errors import InvalidEvent
from farthing.aether.events import Event, content_field, parse_event
from farthing.aether.numbers import MAX_U16
from farthing.ilp import toon

START: Final = b"event_id:"


def is_aether(octets: bytes) -> bool:
    return octets.startswith(START)


def dumps(event: Event) -> bytes:
    fields = {
        "event_id": event.id,
        "pubkey": event.pubkey,
        "created_at": event.created_at,
        "kind": event.kind,
        "tags": [list(tag) for tag in event.tags],
        **content_field(event.content),
        "sig": event.sig,
    }
    octets = toons.dumps(fields).encode()
    # The text is parsed again as a check: a fault of `toons` must not cost anyone money.
    if toon.loads(octets) != fields:
        raise toon.NotEncodable(
            "expected TOON that parses to the same event, got a different event"
        )
    return octets


def loads(octets: bytes, *, max_tags: int = MAX_U16) -> Event:
    try:
        value = toon.loads(octets)
    except toon.InvalidToon as error:
        raise InvalidEvent(f"expected TOON: {error}") from None
    return parse_event(value, max_tags=max_tags)
