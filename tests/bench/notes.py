"""The events that are published: short notes with an `e` and a `p` tag, signed ahead of time."""

import random
import time
from collections.abc import Sequence
from functools import cache

from farthing.nostr.events import Event, sign_event

# As on a relay, authors come back: after a while keys are known.
AUTHORS = 1024
_TEXT = "the quick brown fox jumps over the lazy dog and says so, note %d"


@cache
def author_secret(number: int) -> bytes:
    return random.Random(f"author {number}").randbytes(32)


def signed_notes(number: int, authors: int = AUTHORS) -> list[tuple[Event, bytes]]:
    """New notes, each with its author's secret key."""
    randomness, now = random.Random(), int(time.time())
    secrets = [author_secret(each % authors) for each in range(number)]
    return [
        (_note(randomness, secret, each, now), secret) for each, secret in enumerate(secrets)
    ]  # fmt: skip


def _note(randomness: random.Random, secret: bytes, number: int, now: int) -> Event:
    tags = [["e", randomness.randbytes(32).hex()], ["p", randomness.randbytes(32).hex()]]
    return sign_event(secret, kind=1, content=_TEXT % number, created_at=now, tags=tags)


def event_messages(notes: Sequence[tuple[Event, bytes]]) -> list[bytes]:
    return [b'["EVENT",%b]' % event.to_json().encode() for event, _ in notes]
