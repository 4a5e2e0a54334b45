"""Steps of a packet for others: find the next hop, keep our fee, send it on, and settle by what
comes back.

The incoming amount is held before the packet leaves and kept only when the next hop's fulfillment
is the condition's preimage. Condition and data go through untouched.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from http.client import UNAUTHORIZED
from itertools import repeat
from secrets import token_hex
from typing import NamedTuple

from farthing.connector.exchange import (
    ForgedFulfillment,
    PaymentFailed,
    RefusedByHttp,
    exchange,
)
from farthing.connector.incoming import IncomingPacket
from farthing.connector.known_peers import known_peers
from farthing.connector.limits import max_balance
from farthing.connector.peering import outgoing_token
from farthing.connector.rate import check_count, count_shared
from farthing.context import Agent
from farthing.ilp.address import is_peer
from farthing.ilp.fees import forwarding_fee
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.ilp.reject import (
    InsufficientLiquidity,
    InsufficientSourceAmount,
    InsufficientTimeout,
    NextHopRejected,
    PeerUnreachable,
    TimedOut,
    Unreachable,
    WrongCondition,
)
from farthing.ilp.tokens import InvalidToken
from farthing.ports.meter import Metric
from farthing.ports.outbound import OutboundFailed, OutboundTimeout
from farthing.store.ledger import Hold, Peer
from farthing.store.receipts import Forwarded, Receipt
from farthing.store.routes import Route

log = logging.getLogger("farthing")


def answer_repeat(agent: Agent, packet: IncomingPacket) -> Fulfill | None:
    """Count the packet. A packet that is equal, in all but its expiry, to one of this peer that we
    have sent on is not sent again: it gets the fulfillment from the receipt. A packet of amount 0
    leaves no receipt."""
    if not packet.prepare.amount:
        return None  # counted by `check_free_rate`
    packet.digest = packet_digest(packet.prepare)
    packets, receipt = agent.engine.together(
        lambda: count_shared(agent, packet),
        lambda: _receipt_of_repeat(agent, packet),
    )
    check_count(agent, packets)
    return None if receipt is None else Fulfill(bytes.fromhex(receipt.fulfillment))


def packet_digest(prepare: Prepare) -> str:
    """Tells packets with one condition apart: a payer may use it for several payments."""
    destination = prepare.destination.encode()
    head = len(destination).to_bytes(2) + destination + prepare.amount.to_bytes(8)
    return sha256(head + prepare.data).hexdigest()


def _receipt_of_repeat(agent: Agent, packet: IncomingPacket) -> Receipt | None:
    condition = packet.prepare.condition.hex()
    return agent.ledger.forwarded_before(packet.peer.id, condition, packet.digest)


def choose_next_hop(agent: Agent, packet: IncomingPacket) -> None:
    destination = packet.prepare.destination
    if is_peer(destination):
        raise Unreachable("what is addressed to peer. is never forwarded")
    peer = find_way(agent, destination).peer
    if peer is None or not peer.takes_packets:
        raise Unreachable(f"no route to {destination}")
    if peer.id == packet.peer.id:
        raise Unreachable("the only route leads back to where the packet came from")
    packet.next_hop = peer


class Way(NamedTuple):
    """Whom packets go to, and the route that says so; no route to a peer by its own address."""

    peer: Peer | None
    route: Route | None


def find_way(agent: Agent, destination: str) -> Way:
    """By the longest prefix, of a route or of a peer's own address; the peer itself if both say as
    much. An address that a followed agent merely claims counts against the table only where the
    table knows it for the owner: the rules against poisoning are the table's."""
    route = agent.routes.lookup(destination)
    direct = known_peers(agent).by_address(destination)
    if route is None or (direct is not None and _counts_against(direct, route)):
        return Way(direct, None)
    return Way(known_peers(agent).by_pubkey(route.next_hop), route)


def _counts_against(direct: Peer, route: Route) -> bool:
    is_its_own = not direct.from_follows or direct.pubkey == route.owner
    return is_its_own and len(direct.ilp_address) >= len(route.prefix)


def make_onward_packet(agent: Agent, packet: IncomingPacket) -> None:
    """The packet as it leaves: less our fee, with less time."""
    settings, amount = agent.settings, packet.prepare.amount
    fee = forwarding_fee(
        settings.forward_fee, settings.forward_fee_ppm, amount, settings.forward_min_fee
    )
    if amount and amount - fee <= 0:
        raise InsufficientSourceAmount(f"the fee of {fee} leaves nothing to forward")
    expires_ms = min(
        packet.expires_ms - settings.forward_margin_ms, agent.now_ms + settings.forward_max_ms
    )
    if expires_ms - agent.now_ms < settings.forward_margin_ms:
        raise InsufficientTimeout("too little time is left to forward")
    expires = datetime.fromtimestamp(expires_ms / 1000, UTC)
    expires = expires.replace(microsecond=expires_ms % 1000 * 1000)
    packet.onward = replace(packet.prepare, amount=amount - fee, expires_at=expires)


def hold_amount(agent: Agent, packet: IncomingPacket) -> None:
    settings = agent.settings
    # No longer than we wait for the next hop, whatever the packet says: should we crash, what is
    # held for a packet that expires in a thousand years would be held as long.
    until_ms = agent.now_ms + settings.forward_max_ms + settings.forward_margin_ms
    expires_ms = min(packet.expires_ms, until_ms)
    # Named at random: packets that are equal in everything are still different packets.
    packet.hold = Hold(packet.peer.id, token_hex(16), packet.prepare.amount, expires_ms)
    try:
        room = agent.ledger.hold(packet.hold, max_balance(agent, packet.peer))
    except Exception:
        _release(agent, packet.hold)  # held all the same, if only the store's answer was lost
        raise
    if not room:
        raise InsufficientLiquidity("the balance limit is reached")


def send_onward(agent: Agent, packet: IncomingPacket) -> None:
    """Send the packet to the next hop. Anything but a true fulfillment raises, and the amount is
    held no longer."""
    try:
        _check_time(agent, packet)
        packet.fulfill = send_to(agent, packet.next_hop, packet.onward)
    except BaseException:
        _release(agent, packet.hold)
        raise


def _check_time(agent: Agent, packet: IncomingPacket) -> None:
    """Look at the clock once more: to hold the amount may have taken long."""
    if packet.milliseconds_left(agent.now_ms) <= 0:
        raise TimedOut("the packet has expired")
    if _seconds_left(agent, packet.onward) * 1000 < agent.settings.min_delivery_ms:
        raise InsufficientTimeout("too little time is left to forward")


def _seconds_left(agent: Agent, prepare: Prepare) -> float:
    return (round(prepare.expires_at.timestamp() * 1000) - agent.now_ms) / 1000


def _release(agent: Agent, hold: Hold) -> None:
    """Give back what was held. What fails here must not hide why the packet is rejected: the sweep
    releases the hold when the packet has expired."""
    try:
        agent.ledger.release(hold)
    except Exception:
        log.exception("a hold was left to the sweep", extra={"peer": hold.peer})


def send_to(agent: Agent, next_hop: Peer, onward: Prepare) -> Fulfill:
    """Send a packet to a next hop. Whatever is no true fulfillment raises."""
    try:
        token = outgoing_token(agent.settings.secret, next_hop)
        seconds = _seconds_left(agent, onward)
        reply = exchange(agent.outbound, next_hop.endpoint, token, onward, seconds)
    except InvalidToken:
        raise PeerUnreachable("we have no token for the next hop") from None
    except OutboundTimeout:
        raise TimedOut("the next hop did not answer in time") from None
    except RefusedByHttp as refused:
        raise PeerUnreachable(_why_refused(agent, next_hop, refused.status)) from None
    except ForgedFulfillment:
        raise WrongCondition("the next hop's fulfillment is not the condition's preimage") from None
    except (OutboundFailed, PaymentFailed):
        raise PeerUnreachable("the next hop does not answer") from None
    if isinstance(reply, Reject):
        raise NextHopRejected(reply)
    return reply


def _why_refused(agent: Agent, next_hop: Peer, status: int) -> str:
    if status != UNAUTHORIZED:
        return f"the next hop answered HTTP {status}"
    remedy = f"`farthing peers add NAME --pubkey {agent.settings.pubkey}` there makes us known"
    told = agent.part(_refused_by)
    if next_hop.id not in told:  # once for each: every packet would say so
        told.add(next_hop.id)
        log.warning("a peer does not know us", extra={"peer": next_hop.id, "remedy": remedy})
    return f"the next hop does not know us (HTTP 401): {remedy}"


def _refused_by(_agent: Agent) -> set[str]:
    return set()


def settle(agent: Agent, packet: IncomingPacket) -> Fulfill:
    """Keep what was held, and owe the next hop what it is due, in one transaction. The next hop has
    fulfilled, so this is tried until the packet expires, and never afterwards."""
    hold = packet.hold
    if not hold.amount:  # moved nothing, so there is nothing to write
        return packet.fulfill
    receipt = _receipt(agent, packet)
    for pause in _pauses():
        if agent.now_ms >= hold.expires_ms:
            break
        try:
            if agent.ledger.post(hold, agent.ledger.forwarded(receipt)):
                agent.meter.count(Metric.REVENUE, receipt.price)
                return packet.fulfill
            standing = agent.ledger.receipt(receipt)
        except Exception:
            log.exception("a packet is settled once more", extra={"peer": packet.peer.id})
            agent.sleep(min(pause, max(hold.expires_ms - agent.now_ms, 0) / 1000))
            continue
        if standing is None or standing.purpose == receipt.purpose:
            break  # the hold is gone: swept, or settled by an attempt whose answer was lost
        receipt = _of_its_own(receipt)
    if not agent.ledger.release(hold) and _is_settled(agent, receipt):
        return packet.fulfill
    # We owe the next hop this amount, and the payer does not owe it to us.
    log.error("a fulfilled packet expired before it was settled", extra={
        "peer": packet.peer.id, "next_hop": packet.next_hop.id, "amount": packet.onward.amount,
    })  # fmt: skip
    agent.meter.count(Metric.INTERNAL_ERRORS)
    raise TimedOut("the packet expired before it was settled")


def _of_its_own(receipt: Receipt) -> Receipt:
    """The receipt where one of an equal packet stands: that was another packet, and both were sent
    on."""
    return receipt._replace(purpose=receipt.purpose._replace(again=True))  # type: ignore[call-arg]


def _is_settled(agent: Agent, receipt: Receipt) -> bool:
    standing = agent.ledger.receipt(receipt)
    return standing is not None and standing.purpose == receipt.purpose


def _pauses() -> Iterator[float]:
    """Seconds between attempts to settle."""
    yield from (0.02, 0.05, 0.1, 0.2, 0.5)
    yield from repeat(1.0)


def _receipt(agent: Agent, packet: IncomingPacket) -> Receipt:
    """Each packet that was sent on gets a receipt, also one that is equal to another."""
    amount, outgoing = packet.prepare.amount, packet.onward.amount
    return Receipt(
        peer=packet.peer.id,
        condition=packet.prepare.condition.hex(),
        fulfillment=packet.fulfill.fulfillment.hex(),
        scheme="",
        amount=amount,
        price=amount - outgoing,
        time=agent.now,
        purpose=Forwarded(
            next_hop=packet.next_hop.id,
            outgoing=outgoing,
            size=len(packet.prepare.data),
            digest=packet.digest,
            packet=packet.hold.packet,
        ),
    )
