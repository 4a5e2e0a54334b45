"""Tokens between two agents that know each other's Nostr keys. Both compute them, so nobody has to
send them. The token of a peer without a key is agreed by other means."""

import hmac
from base64 import urlsafe_b64encode
from functools import lru_cache

from farthing.ilp.condition import author_fulfillment
from farthing.ilp.tokens import InvalidToken, unseal
from farthing.nostr.events import public_key_of
from farthing.store.ledger import Peer

_LABEL = b"farthing/peering/v1"
_TOKENS_REMEMBERED = 1024


def derived_token(own_secret: bytes, other_pubkey: str, sender_pubkey: str) -> str:
    """The token that `sender_pubkey`, one of the two agents, shows to the other."""
    shared = author_fulfillment(own_secret, bytes.fromhex(other_pubkey), _LABEL)
    token = hmac.digest(shared, bytes.fromhex(sender_pubkey), "sha256")
    return urlsafe_b64encode(token).decode().rstrip("=")


def incoming_token(own_secret: bytes, peer_pubkey: str) -> str:
    return derived_token(own_secret, peer_pubkey, peer_pubkey)


def outgoing_token(own_secret: bytes, peer: Peer) -> str:
    """The token that we show at a peer's endpoint."""
    return _outgoing_token(own_secret, peer.id, peer.outgoing_token, peer.pubkey)


# Cached: decrypting or computing a token takes as long as all the rest of forwarding.
@lru_cache(maxsize=_TOKENS_REMEMBERED)
def _outgoing_token(own_secret: bytes, peer_id: str, sealed: bytes | None, pubkey: str) -> str:
    if sealed:
        return unseal(own_secret, peer_id, sealed).decode()
    if pubkey:
        return derived_token(own_secret, pubkey, public_key_of(own_secret))
    raise InvalidToken("we have no token for this peer")
