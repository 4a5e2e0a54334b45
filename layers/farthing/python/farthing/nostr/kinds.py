"""The storage rule of each range of kinds, and the kinds with a meaning for a relay."""

from enum import IntEnum, StrEnum
from functools import lru_cache


class Kind(IntEnum):
    METADATA = 0  # NIP-01
    FOLLOWS = 3  # NIP-02
    ENCRYPTED_DIRECT_MESSAGE = 4  # NIP-04
    DELETION = 5  # NIP-09
    REQUEST_TO_VANISH = 62  # NIP-62
    GIFT_WRAP = 1059  # NIP-59
    REPORT = 1984  # NIP-56
    RELAY_LIST = 10002  # NIP-65
    ILP_PEER_INFO = 10032  # ILP-gated relay
    ROUTE_ANNOUNCEMENT = 10033  # ILP-gated relay
    CLIENT_AUTH = 22242  # NIP-42


MAX_KIND = 65535

# Readable only by the parties named in the event, once they have authenticated (NIP-42).
PRIVATE_KINDS = frozenset({Kind.ENCRYPTED_DIRECT_MESSAGE.value, Kind.GIFT_WRAP.value})

# No deletion removes these (NIP-09, NIP-62).
UNDELETABLE_KINDS = frozenset({Kind.DELETION.value, Kind.REQUEST_TO_VANISH.value})


class Keeping(StrEnum):
    """How a relay keeps an event of a kind (NIP-01)."""

    REGULAR = "regular"
    REPLACEABLE = "replaceable"
    ADDRESSABLE = "addressable"
    EPHEMERAL = "ephemeral"


@lru_cache(maxsize=4096)
def keeping(kind: int) -> Keeping:
    if kind in (0, 3) or 10000 <= kind < 20000:
        return Keeping.REPLACEABLE
    if 20000 <= kind < 30000:
        return Keeping.EPHEMERAL
    if 30000 <= kind < 40000:
        return Keeping.ADDRESSABLE
    return Keeping.REGULAR
