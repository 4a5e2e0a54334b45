"""What a kind number says about keeping an event. Aether's ranges differ from those of Nostr."""

from enum import IntEnum
from typing import Final

from farthing.nostr.kinds import Keeping

MAX_KIND: Final = 39999  # the last kind with a rule for keeping; uint16 reaches further


class Kind(IntEnum):
    INVOICE_OFFER = 10002  # its content is an invoice attachment


def keeping(kind: int) -> Keeping:
    if 10000 <= kind <= 19999:
        return Keeping.REPLACEABLE
    if 20000 <= kind <= 29999:
        return Keeping.EPHEMERAL
    if 30000 <= kind <= 39999:
        return Keeping.ADDRESSABLE  # the document says "parameterized replaceable"
    return Keeping.REGULAR  # "immutable"
