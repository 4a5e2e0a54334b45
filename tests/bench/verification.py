"""The yardstick: BIP-340 signatures that one core verifies in a second."""

import time
from collections.abc import Sequence

from coincurve import PublicKeyXOnly

from farthing.nostr.events import Event


def verification_rate(events: Sequence[Event], seconds: float) -> float:
    """Signatures alone: neither JSON nor ids, and keys that are already points on the curve."""
    prepared = [
        (PublicKeyXOnly(bytes.fromhex(e.pubkey)), bytes.fromhex(e.sig), bytes.fromhex(e.id))
        for e in events
    ]
    verified, started = 0, time.perf_counter()
    while (taken := time.perf_counter() - started) < seconds:
        for key, signature, message in prepared:
            assert key.verify(signature, message)
        verified += len(prepared)
    return verified / taken
