"""Conditions of BTP-NIPs packets: who sent a message, and proof that a delivery has arrived."""

import hmac
from functools import lru_cache
from hashlib import sha256
from typing import Final

from farthing.btp_nips.errors import AddressRefused, UnknownCondition
from farthing.btp_nips.identity import Owner, key_owner, owner_pubkey, peer_owner
from farthing.ilp import address
from farthing.ilp.condition import Scheme, _shared_x, condition_of, find_fulfillment

# Not the label of messages to a relay: a hop could otherwise send a delivery back as a message, and
# take the preimage from the answer.
DELIVERY_LABEL: Final = b"farthing/delivery/v1"

_PAIRS_REMEMBERED: Final = 4096


def identify(
    condition: bytes, data: bytes, *, relay_secret: bytes, sender: str | None, peer_id: str
) -> tuple[Owner, bytes]:
    """The owner of what a message asks for, and the fulfillment. Raises UnknownCondition.

    Only the sender's secret makes a condition of scheme `author`, over all bytes of the message.
    By an interop condition anyone can be anyone, so it speaks for the peer alone.
    """
    found = find_fulfillment(
        condition,
        relay_secret=relay_secret,
        data=data,
        author=None if sender is None else bytes.fromhex(sender),
        accept=(Scheme.AUTHOR, Scheme.INTEROP),
    )
    if found is None:
        raise UnknownCondition("the condition was made by no scheme that we know")
    scheme, fulfillment = found
    if scheme is Scheme.AUTHOR and sender is not None:
        return key_owner(sender), fulfillment
    return peer_owner(peer_id), fulfillment


def delivery_fulfillment(secret_key: bytes, other_pubkey: bytes, data: bytes) -> bytes:
    """The preimage of a packet from relay to subscriber. The relay calls it with its own secret and
    the subscriber's key, the subscriber with its own secret and the relay's key."""
    mac = _pair_mac(secret_key, other_pubkey).copy()
    mac.update(data)
    return mac.digest()


def keyless_delivery_fulfillment(data: bytes) -> bytes:
    """The preimage for a subscriber without a key. Such a packet goes to its own peer only."""
    return sha256(data).digest()


def fulfillment_for(owner: Owner, relay_secret: bytes, data: bytes) -> bytes:
    """The preimage that the relay expects back from the owner of a subscription."""
    pubkey = owner_pubkey(owner)
    if pubkey is None:
        return keyless_delivery_fulfillment(data)
    return delivery_fulfillment(relay_secret, bytes.fromhex(pubkey), data)


def fulfils(fulfillment: bytes, condition: bytes) -> bool:
    return hmac.compare_digest(condition_of(fulfillment), condition)


def check_reply_to(reply_to: str, *, own_address: str, owner: Owner, peer_address: str) -> None:
    """Whether packets may be sent there at all, before anything is. Raises AddressRefused."""
    if address.is_prefix(own_address, reply_to) or address.is_peer(reply_to):
        raise AddressRefused("expected a replyTo that is not our own address, nor a peer's link")
    is_below_peer = peer_address != "" and address.is_prefix(peer_address, reply_to)
    if owner_pubkey(owner) is None and not is_below_peer:
        raise AddressRefused("without a sender's key, expected a replyTo below the peer's address")


@lru_cache(maxsize=_PAIRS_REMEMBERED)
def _pair_mac(secret_key: bytes, other_pubkey: bytes) -> hmac.HMAC:
    """HMAC by the key that the two share, before any data: the curve takes far longer."""
    key = hmac.digest(_shared_x(secret_key, other_pubkey), DELIVERY_LABEL, "sha256")
    return hmac.new(key, digestmod="sha256")
