"""The first steps of every packet: recognise a repeated request, decode the packet, check its
expiry and its amount. Only the claim of a Request-Id asks the store."""

import logging
from hashlib import sha256

from farthing.connector.incoming import IncomingPacket
from farthing.connector.known_peers import max_packet
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Reject, decode_prepare, decode_reply
from farthing.ilp.reject import AmountTooLarge, BadRequest, InsufficientTimeout, TimedOut
from farthing.store.table import StoreError

log = logging.getLogger("farthing")


def claim_request(agent: Agent, packet: IncomingPacket) -> Fulfill | Reject | None:
    """Claim the packet's Request-Id, if it has one (RFC 0035). A repeated request gets the reply
    that was kept for it."""
    if not packet.request_id:
        return None
    digest = sha256(packet.octets).hexdigest()
    claimed = agent.ledger.claim_request(packet.peer.id, packet.request_id, digest, agent.now)
    if claimed is not None and "reply" in claimed:
        packet.answered_before = True
        return decode_reply(claimed["reply"])
    if claimed is not None and claimed["packet"] != digest:
        raise BadRequest("this Request-Id was used for another packet")
    packet.claimed_request = True
    packet.repeats_request = claimed is not None
    return None


def keep_reply(agent: Agent, packet: IncomingPacket, reply: bytes) -> None:
    """Keep the reply under the Request-Id that the packet has claimed."""
    try:
        agent.ledger.answer_request(packet.peer.id, packet.request_id, reply)
    except StoreError:
        # The packet has had its effect. If it is sent again, it is recognised without its
        # Request-Id.
        log.exception("the reply to a request could not be stored", extra={"peer": packet.peer.id})


def decode(_agent: Agent, packet: IncomingPacket) -> None:
    packet.prepare = decode_prepare(packet.octets)
    packet.expires_ms = round(packet.prepare.expires_at.timestamp() * 1000)


def check_expiry(agent: Agent, packet: IncomingPacket) -> None:
    """A packet cannot be fulfilled after its expiry. The expiry is checked again before money
    moves."""
    left = packet.expires_ms - packet.arrived_ms
    if left <= 0:
        raise TimedOut("the packet has expired")
    if left < agent.settings.min_delivery_ms:
        raise InsufficientTimeout("too little time is left to handle the packet")


def check_amount(agent: Agent, packet: IncomingPacket) -> None:
    maximum = max_packet(agent, packet.peer)
    if packet.prepare.amount > maximum:
        raise AmountTooLarge(packet.prepare.amount, maximum)
