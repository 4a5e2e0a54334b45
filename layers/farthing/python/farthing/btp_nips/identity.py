"""The owner of a subscription, and the names under which relays pass a subscription on."""

from hashlib import sha256
from typing import Final, NewType

Owner = NewType("Owner", str)

_KEY: Final = "key:"
_PEER: Final = "peer:"
_UPSTREAM_PREFIX: Final = "u-"
_UPSTREAM_DIGITS: Final = 32


def key_owner(pubkey: str) -> Owner:
    """An owner that is proven by a condition that only the holder of this key can make."""
    return Owner(_KEY + pubkey)


def peer_owner(peer_id: str) -> Owner:
    """The owner for a sender without a key: the peer from which the packets come."""
    return Owner(_PEER + peer_id)


def owner_pubkey(owner: Owner) -> str | None:
    return owner.removeprefix(_KEY) if owner.startswith(_KEY) else None


def upstream_id(owner: Owner, subscription_id: str, peer_pubkey: str) -> str:
    """The id of the subscription that we open at a peer for one of ours. The peer's key has a fixed
    length and an owner holds no zero octet, so no two subscriptions share an id."""
    digest = sha256(_joined(owner, subscription_id, peer_pubkey)).hexdigest()
    return _UPSTREAM_PREFIX + digest[:_UPSTREAM_DIGITS]


def origin_of(relay_pubkey: str, owner: Owner, subscription_id: str) -> str:
    """The name of a subscription for all relays that it is passed on to. The name hides the
    owner."""
    return sha256(_joined(relay_pubkey, owner, subscription_id)).hexdigest()


def _joined(*parts: str) -> bytes:
    return b"\0".join(part.encode() for part in parts)
