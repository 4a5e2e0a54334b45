"""Negentropy protocol V1: set reconciliation over (timestamp, id) pairs, pure and without I/O.

NEG-OPEN, NEG-MSG and the choice of events are left to the relay.
"""

from farthing.nostr.negentropy.reconcile import Initiator, Reconciled, Responder
from farthing.nostr.negentropy.vector import InvalidItems, SealedVector
from farthing.nostr.negentropy.wire import InvalidNegentropy

__all__ = [
    "Initiator",
    "InvalidItems",
    "InvalidNegentropy",
    "Reconciled",
    "Responder",
    "SealedVector",
]
