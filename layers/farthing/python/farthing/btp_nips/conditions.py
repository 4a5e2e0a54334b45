"""Conditions of BTP-NIPs packets: they prove the sender of a message, and the arrival of a
delivery."""

import hmac
from hashlib import sha256
from typing import Final

from farthing.btp_nips.errors import AddressRefused, UnknownCondition
from farthing.btp_nips.identity import Owner, key_owner, owner_pubkey, peer_owner
from farthing.ilp import address
from farthing.ilp.condition import Scheme, author_fulfillment, condition_of, find_fulfillment

# The label differs from that of messages to a relay. Otherwise a hop could send a delivery back as
# a message, and take the preimage from the answer.
DELIVERY_LABEL: Final = b"farthing/delivery/v1"


def identify(
    condition: bytes, data: bytes, *, relay_secret: bytes, sender: str | None, peer_id: str
) -> tuple[Owner, bytes]:
    """The owner of the subscription that a message is about, and the fulfillment. Raises
    UnknownCondition.

    Only the sender's secret makes a condition of scheme `author`, over all bytes of the message.
    Anyone can make an interop condition, so it proves nothing, and the owner is the peer.
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
    return author_fulfillment(secret_key, other_pubkey, data, DELIVERY_LABEL)


def keyless_delivery_fulfillment(data: bytes) -> bytes:
    """The preimage for a subscriber without a key. Such a packet goes only to the subscriber's own
    peer."""
    return sha256(data).digest()


def fulfillment_for(owner: Owner, relay_secret: bytes, data: bytes) -> bytes:
    """The preimage that the relay expects back from the owner of a subscription."""
    pubkey = owner_pubkey(owner)
    if pubkey is None:
        return keyless_delivery_fulfillment(data)
    return delivery_fulfillment(relay_secret, bytes.fromhex(pubkey), data)


def fulfils(fulfillment: bytes, condition: bytes) -> bool:
    return hmac.compare_digest(condition_of(fulfillment), condition)


def check_reply_to(reply_to: str, *, is_ours: bool, owner: Owner, peer_address: str) -> None:
    """Check whether packets may go to `reply_to`, before one is sent. Raises AddressRefused."""
    if is_ours or address.is_peer(reply_to):
        raise AddressRefused("expected a replyTo that is not our own address, nor a peer's link")
    is_below_peer = peer_address != "" and address.is_prefix(peer_address, reply_to)
    if owner_pubkey(owner) is None and not is_below_peer:
        raise AddressRefused("without a sender's key, expected a replyTo below the peer's address")
