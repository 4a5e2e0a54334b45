"""The ranges of kinds, which decide how long an event is stored. They differ from Nostr's
ranges."""

from enum import IntEnum
from typing import Final

from farthing.nostr.kinds import Keeping

MAX_KIND: Final = 39999  # the last kind with a storage rule; uint16 allows larger numbers


class Kind(IntEnum):
    INVOICE_OFFER = 10002  # the event's content is an invoice attachment


def keeping(kind: int) -> Keeping:
    if 10000 <= kind <= 19999:
        return Keeping.REPLACEABLE
    if 20000 <= kind <= 29999:
        return Keeping.EPHEMERAL
    if 30000 <= kind <= 39999:
        return Keeping.ADDRESSABLE  # the document says "parameterized replaceable"
    return Keeping.REGULAR  # "immutable"
