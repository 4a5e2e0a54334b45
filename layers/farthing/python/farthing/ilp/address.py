"""ILP addresses: their syntax, and which prefixes cover an address. The connector does the
routing."""

import re
from typing import Final, NewType

from farthing.ilp.oer import InvalidPacket

Address = NewType("Address", str)

MAX_LENGTH: Final = 1023
MIN_SEGMENTS: Final = 3  # `g` and `g.agent` belong to nobody

_ADDRESS: Final = re.compile(r"(g|private|example|peer|self|test[1-3]?|local)([.][a-zA-Z0-9_~-]+)+")


class InvalidAddress(InvalidPacket):
    """Text that is not an ILP address."""


def is_valid(text: str) -> bool:
    # fullmatch, because `$` would let a newline through at the end.
    return len(text) <= MAX_LENGTH and _ADDRESS.fullmatch(text) is not None


def parse(text: str) -> Address:
    if not is_valid(text):
        raise InvalidAddress("expected an ILP address")
    return Address(text)


def is_prefix(prefix: str, address: str) -> bool:
    """Whether `prefix` covers `address`, segment by segment; the empty prefix covers everything."""
    return not prefix or address == prefix or address.startswith(prefix + ".")


def is_peer(address: str) -> bool:
    """Whether the address is valid on one link only. A packet to such an address is never
    forwarded."""
    return is_prefix("peer", address)


def is_specific(address: str) -> bool:
    """Whether one agent can own the address. A shorter one would cover the addresses of many
    agents."""
    return address.count(".") + 1 >= MIN_SEGMENTS
