"""Those who sign events in the tests."""

import itertools
import secrets
import time
from typing import Any

from farthing.nostr.events import public_key_of, sign_event

_serial = itertools.count(1)


class Author:
    def __init__(self, secret: str = "") -> None:
        self.secret = secret or secrets.token_hex(32)
        self.pubkey = public_key_of(bytes.fromhex(self.secret))

    def event(
        self,
        content: str | None = None,
        *,
        kind: int = 1,
        created_at: int | None = None,
        tags: list[list[str]] | None = None,
    ) -> dict[str, Any]:
        """A signed event; no two are the same unless all is given."""
        event = sign_event(
            bytes.fromhex(self.secret),
            kind=kind,
            content=f"event {next(_serial)}" if content is None else content,
            created_at=int(time.time()) if created_at is None else created_at,
            tags=tags or [],
        )
        return {**event.as_dict(), "tags": [list(tag) for tag in event.tags]}

    def auth_event(
        self, *, challenge: str, relay: str, kind: int = 22242, created_at: int | None = None
    ) -> dict[str, Any]:
        tags = [["relay", relay], ["challenge", challenge]]
        return self.event("", kind=kind, created_at=created_at, tags=tags)


def newest_first(events: list[dict[str, Any]]) -> list[str]:
    """The ids in the order that NIP-01 wants."""
    return [event["id"] for event in sorted(events, key=lambda e: (-e["created_at"], e["id"]))]
