"""Aether's error codes as Nostr prefixes, for Nostr clients."""

from typing import Final

from farthing.aether.errors import AetherError, Code
from farthing.nostr.messages import Prefix

_PREFIXES: Final = {
    Code.PAYMENT_REQUIRED: Prefix.RESTRICTED,
    Code.CAPABILITY_REFUSED: Prefix.RESTRICTED,
    Code.RATE_LIMITED: Prefix.RATE_LIMITED,
    Code.INTERNAL: Prefix.ERROR,
}


def prefix_of(error: AetherError) -> Prefix:
    return _PREFIXES.get(error.code, Prefix.INVALID)
