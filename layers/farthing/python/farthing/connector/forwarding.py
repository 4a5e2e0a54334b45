"""A packet for others: find the next hop, keep our fee, send it on, and settle by what comes back.

The incoming amount is held before the packet leaves and kept only when the next hop's fulfillment
is the condition's preimage. Condition and data go through untouched.
"""

from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from farthing.connector.incoming import IncomingPacket
from farthing.connector.known_peers import known_peers
from farthing.connector.peering import outgoing_token
from farthing.connector.rate import check_rate, count_packet
from farthing.context import Agent
from farthing.ilp.address import is_peer
from farthing.ilp.fees import forwarding_fee
from farthing.ilp.packet import Fulfill, InvalidPacket, Prepare, Reject, decode_reply, encode
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
from farthing.store.ledger import Hold, Peer, Receipt
from farthing.store.routes import Route

OCTETS = "application/octet-stream"


def forward(agent: Agent, incoming: IncomingPacket) -> Fulfill:
    repeated = check_ledger(agent, incoming)
    if repeated is not None:
        return Fulfill(bytes.fromhex(repeated.fulfillment))
    next_hop = choose_next_hop(agent, incoming)
    onward = onward_packet(agent, incoming)
    hold = hold_amount(agent, incoming)
    try:
        fulfill = send_onward(agent, next_hop, onward)
    except BaseException:
        agent.ledger.release(hold)
        raise
    settle(agent, incoming, hold, next_hop, onward, fulfill)
    return fulfill


def check_ledger(agent: Agent, incoming: IncomingPacket) -> Receipt | None:
    """Count the packet, also one that is a repeat; the receipt if it has been fulfilled before."""
    packets, repeated = agent.engine.together(
        lambda: count_packet(agent, incoming),
        lambda: find_receipt(agent, incoming),
    )
    check_rate(agent, packets)
    receipt: Receipt | None = repeated
    return receipt


def find_receipt(agent: Agent, incoming: IncomingPacket) -> Receipt | None:
    """What a packet has been fulfilled with before."""
    return agent.ledger.receipt(incoming.peer.id, incoming.prepare.condition.hex(), "")


def choose_next_hop(agent: Agent, incoming: IncomingPacket) -> Peer:
    destination = incoming.prepare.destination
    if is_peer(destination):
        raise Unreachable("what is addressed to peer. is never forwarded")
    peer = find_way(agent, destination).peer
    if peer is None or not peer.takes_packets:
        raise Unreachable(f"no route to {destination}")
    if peer.id == incoming.peer.id:
        raise Unreachable("the only route leads back to where the packet came from")
    return peer


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


def onward_packet(agent: Agent, incoming: IncomingPacket) -> Prepare:
    """The packet as it leaves: less our fee, with less time."""
    settings, amount = agent.settings, incoming.prepare.amount
    fee = forwarding_fee(settings.forward_fee, settings.forward_fee_ppm, amount)
    if amount and amount - fee <= 0:
        raise InsufficientSourceAmount(f"the fee of {fee} leaves nothing to forward")
    expires_ms = min(
        incoming.expires_ms - settings.forward_margin_ms, agent.now_ms + settings.forward_max_ms
    )
    if expires_ms - agent.now_ms < settings.forward_margin_ms:
        raise InsufficientTimeout("too little time is left to forward")
    expires = datetime.fromtimestamp(expires_ms / 1000, UTC)
    expires = expires.replace(microsecond=expires_ms % 1000 * 1000)
    return replace(incoming.prepare, amount=amount - fee if amount else 0, expires_at=expires)


def hold_amount(agent: Agent, incoming: IncomingPacket) -> Hold:
    packet = sha256(encode(incoming.prepare)).hexdigest()
    settings = agent.settings
    # No longer than we wait for the next hop, whatever the packet says: should we crash, what is
    # held for a packet that expires in a thousand years would be held as long.
    until_ms = agent.now_ms + settings.forward_max_ms + settings.forward_margin_ms
    expires_ms = min(incoming.expires_ms, until_ms)
    hold = Hold(incoming.peer.id, packet, incoming.prepare.amount, expires_ms)
    maximum = incoming.peer.max_balance or agent.settings.max_balance
    if not agent.ledger.hold(hold, maximum):
        raise InsufficientLiquidity("the balance limit is reached")
    return hold


def send_onward(agent: Agent, next_hop: Peer, onward: Prepare) -> Fulfill:
    """What the next hop answers; anything but a true fulfillment raises."""
    try:
        token = outgoing_token(bytes.fromhex(agent.settings.secret_key), next_hop)
    except InvalidToken:
        raise PeerUnreachable("we have no token for the next hop") from None
    headers = {"Content-Type": OCTETS, "Accept": OCTETS, "Authorization": f"Bearer {token}"}
    seconds = (onward.expires_at.timestamp() * 1000 - agent.now_ms) / 1000
    try:
        response = agent.outbound.post(next_hop.endpoint, headers, encode(onward), seconds)
        if response.status != 200:
            raise PeerUnreachable(f"the next hop answered HTTP {response.status}")
        reply = decode_reply(response.body)
    except OutboundTimeout:
        raise TimedOut("the next hop did not answer in time") from None
    except (OutboundFailed, InvalidPacket):
        raise PeerUnreachable("the next hop does not answer") from None
    if isinstance(reply, Reject):
        raise NextHopRejected(reply)
    if sha256(reply.fulfillment).digest() != onward.condition:
        raise WrongCondition("the next hop's fulfillment is not the condition's preimage")
    return reply


def settle(
    agent: Agent,
    incoming: IncomingPacket,
    hold: Hold,
    next_hop: Peer,
    onward: Prepare,
    fulfill: Fulfill,
) -> None:
    """Keep what was held, and owe the next hop what it is due, in one transaction."""
    receipt = Receipt(
        peer=incoming.peer.id,
        condition=incoming.prepare.condition.hex(),
        event_id="",
        amount=incoming.prepare.amount,
        price=incoming.prepare.amount - onward.amount,
        time=agent.now,
        fulfillment=fulfill.fulfillment.hex(),
        kind=-1,
        size=len(incoming.prepare.data),
        scheme="",
        next_hop=next_hop.id,
        outgoing=onward.amount,
    )
    if not agent.ledger.post(hold, agent.ledger.forwarded(receipt)):
        if find_receipt(agent, incoming) is None:
            raise TimedOut("the packet expired before it was settled")
        agent.ledger.release(hold)  # a repeat of the packet has been settled already
        return
    agent.meter.count(Metric.REVENUE, receipt.price)
