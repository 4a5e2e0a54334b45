"""Steps of a packet for another agent: find the next hop, keep our fee, send the packet on, and
settle according to the reply.

The incoming amount is held before the packet leaves and kept only when the next hop's fulfillment
is the condition's preimage. Condition and data are forwarded unchanged.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
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
from farthing.connector.known_peers import known_peers, max_balance
from farthing.connector.peering import outgoing_token
from farthing.connector.rate import check_count, count_shared
from farthing.context import Agent
from farthing.ilp.address import is_peer, is_prefix
from farthing.ilp.fees import forwarding_fee
from farthing.ilp.packet import Fulfill, Prepare, Reject, decode_reply
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


def await_first_reply(agent: Agent, packet: IncomingPacket) -> Fulfill | Reject | None:
    """Two requests with one Request-Id must not send the packet on twice, so the second takes the
    reply of the first. The first has stopped without a reply if none comes in the time that a
    packet may take."""
    if not packet.repeats_request:
        return None
    until_ms = agent.now_ms + agent.settings.forward_max_ms + agent.settings.forward_margin_ms
    for pause in _pauses():
        reply = agent.ledger.reply_to_request(packet.peer.id, packet.request_id)
        if reply is not None:
            packet.claimed_request, packet.answered_before = False, True
            return decode_reply(reply)
        if packet.expires_ms <= agent.now_ms:
            packet.claimed_request = False  # the first request keeps its own reply
            raise TimedOut("the packet has expired")
        if until_ms <= agent.now_ms:
            return None
        agent.sleep(min(pause, (packet.expires_ms - agent.now_ms) / 1000))
    return None


def answer_repeat(agent: Agent, packet: IncomingPacket) -> Fulfill | None:
    """Count the packet. A repeat equals an earlier packet of the same peer in all but the expiry. A
    repeat of a forwarded packet is not sent again: the fulfillment comes from the receipt. A packet
    of amount 0 leaves no receipt."""
    if not packet.prepare.amount:
        return None  # counted by `check_free_rate`
    packet.digest = packet_digest(packet.prepare)
    if agent.alone:
        receipt = _receipt_of_repeat(agent, packet)
    else:
        packets, receipt = agent.engine.together(
            partial(count_shared, agent, packet), partial(_receipt_of_repeat, agent, packet)
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
        raise Unreachable("a packet to an address under peer. is never forwarded")
    peer = find_next_hop(agent, destination).peer
    if peer is None or not peer.takes_packets:
        raise Unreachable(f"no route to {destination}")
    if peer.id == packet.peer.id:
        raise Unreachable("the only route leads back to where the packet came from")
    packet.next_hop = peer


class NextHop(NamedTuple):
    """The next hop and its route. There is no route if the destination is the peer's own
    address."""

    peer: Peer | None
    route: Route | None


def find_next_hop(agent: Agent, destination: str) -> NextHop:
    """Find the longest matching prefix, of a route or of a peer's own address; on a tie, the peer
    itself wins. An address that a followed agent only claims beats a route only if the routing
    table names that agent as the owner: the rules against route poisoning are in the routing
    table."""
    if is_prefix(agent.settings.own_ilp_address, destination):
        return NextHop(find_child(agent, destination), None)
    route = agent.routes.lookup(destination)
    direct = known_peers(agent).by_address(destination)
    if route is None or (direct is not None and _counts_against(direct, route)):
        return NextHop(direct, None)
    return NextHop(known_peers(agent).by_pubkey(route.next_hop), route)


def find_child(agent: Agent, destination: str) -> Peer | None:
    """The peer that has an address below ours which covers the destination: the address that the
    operator gave the peer, or else the one that the peer gets by ILDCP. A followed agent cannot
    claim such an address."""
    own, peers = agent.settings.own_ilp_address, known_peers(agent)
    child = peers.by_address(destination)
    if child is not None and not child.from_follows and child.ilp_address.startswith(f"{own}."):
        return child
    child = peers.by_id(destination[len(own) + 1 :].partition(".")[0])
    return None if child is None or child.ilp_address else child


def is_of_child(agent: Agent, destination: str) -> bool:
    """Whether packets for an address below ours go on to a peer."""
    child = find_child(agent, destination)
    return child is not None and child.takes_packets


def _counts_against(direct: Peer, route: Route) -> bool:
    is_its_own = not direct.from_follows or direct.pubkey == route.owner
    return is_its_own and len(direct.ilp_address) >= len(route.prefix)


def make_onward_packet(agent: Agent, packet: IncomingPacket) -> None:
    """The onward packet has a smaller amount, by our fee, and an earlier expiry."""
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
    # The hold lasts no longer than we wait for the next hop, even if the packet expires later.
    # Otherwise, after a crash, a packet that expires in a thousand years would hold its amount as
    # long.
    until_ms = agent.now_ms + settings.forward_max_ms + settings.forward_margin_ms
    expires_ms = min(packet.expires_ms, until_ms)
    # The hold's name is random: equal packets are still different packets.
    packet.hold = Hold(packet.peer.id, token_hex(16), packet.prepare.amount, expires_ms)
    try:
        room = agent.ledger.hold(packet.hold, max_balance(agent, packet.peer))
    except Exception:
        _release(agent, packet.hold)  # the hold may exist if the store's answer was lost
        raise
    if not room:
        raise InsufficientLiquidity("the balance limit is reached")


def send_onward(agent: Agent, packet: IncomingPacket) -> None:
    """Send the packet to the next hop. Any other reply than a valid Fulfill releases the hold and
    raises."""
    try:
        _check_time(agent, packet)
        packet.fulfill = send_to(agent, packet.next_hop, packet.onward)
    except BaseException:
        _release(agent, packet.hold)
        raise


def _check_time(agent: Agent, packet: IncomingPacket) -> None:
    """Check the expiry again: the hold may have taken long."""
    if packet.expires_ms <= agent.now_ms:
        raise TimedOut("the packet has expired")
    if _seconds_left(agent, packet.onward) * 1000 < agent.settings.min_delivery_ms:
        raise InsufficientTimeout("too little time is left to forward")


def _seconds_left(agent: Agent, prepare: Prepare) -> float:
    return (round(prepare.expires_at.timestamp() * 1000) - agent.now_ms) / 1000


def _release(agent: Agent, hold: Hold) -> None:
    """Release the hold. A failure here must not hide the reason of the reject: the sweep releases
    the hold after the packet has expired."""
    try:
        agent.ledger.release(hold)
    except Exception:
        log.exception(
            "a hold could not be released, the sweep will release it", extra={"peer": hold.peer}
        )


def send_to(agent: Agent, next_hop: Peer, onward: Prepare) -> Fulfill:
    """Send a packet to a next hop. Any other reply than a valid Fulfill raises."""
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
    remedy = f"run `farthing peers add NAME --pubkey {agent.settings.pubkey}` on the peer's side"
    told = agent.part(_refused_by)
    if next_hop.id not in told:  # one warning for each peer, not one for each packet
        told.add(next_hop.id)
        log.warning("a peer has no record of us", extra={"peer": next_hop.id, "remedy": remedy})
    return f"the next hop does not know us (HTTP 401): {remedy}"


def _refused_by(_agent: Agent) -> set[str]:
    return set()


def settle(agent: Agent, packet: IncomingPacket) -> Fulfill:
    """One transaction books the held amount and our debt to the next hop. The next hop has
    fulfilled, so the transaction is retried until the packet expires, and never afterwards."""
    hold = packet.hold
    if not hold.amount:  # no money moves, so there is nothing to write
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
            log.exception("settling a packet failed, trying again", extra={"peer": packet.peer.id})
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
    """The receipt under a key of its own, where an equal packet has a receipt already. Both packets
    were sent on, so each has a receipt."""
    return receipt._replace(purpose=receipt.purpose._replace(again=True))  # type: ignore[call-arg]


def _is_settled(agent: Agent, receipt: Receipt) -> bool:
    standing = agent.ledger.receipt(receipt)
    return standing is not None and standing.purpose == receipt.purpose


def _pauses() -> Iterator[float]:
    """Seconds between attempts to settle, or between looks for a reply."""
    yield from (0.02, 0.05, 0.1, 0.2, 0.5)
    yield from repeat(1.0)


def _receipt(agent: Agent, packet: IncomingPacket) -> Receipt:
    """Each forwarded packet gets a receipt, even if it equals another packet."""
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
