"""What a kind number says about keeping an event. Aether's ranges differ from those of Nostr."""

from enum import IntEnum, StrEnum
from typing import Final

MAX_KIND: Final = 39999  # the last kind with a rule for keeping; uint16 reaches further


class Kind(IntEnum):
    INVOICE_OFFER = 10002  # its content is an invoice attachment


class Retention(StrEnum):
    """How the relay keeps an event."""

    IMMUTABLE = "immutable"
    LATEST = "latest"  # one for each address
    EPHEMERAL = "ephemeral"  # passed on, never stored


def retention(kind: int) -> Retention:
    if is_replaceable(kind) or is_parameterized(kind):
        return Retention.LATEST
    if 20000 <= kind <= 29999:
        return Retention.EPHEMERAL
    return Retention.IMMUTABLE


def is_replaceable(kind: int) -> bool:
    """The latest for each author and kind stays."""
    return 10000 <= kind <= 19999


def is_parameterized(kind: int) -> bool:
    """The latest for each author, kind and `d` value stays."""
    return 30000 <= kind <= 39999
