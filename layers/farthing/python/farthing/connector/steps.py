"""The way of a packet: a fixed list of small steps, in order, and one place that turns every
failure into a reject.

Steps that cost nothing come before those that ask the store, and those before anything that moves
money. A step raises Rejected, returns the Fulfill that ends the way, or returns None to go on.
"""

import logging
import time
from collections.abc import Callable, Sequence

from farthing.connector.delivery import deliver
from farthing.connector.forwarding import forward
from farthing.connector.incoming import IncomingPacket
from farthing.context import Agent
from farthing.ilp.address import is_prefix
from farthing.ilp.packet import (
    Code,
    Fulfill,
    InvalidPacket,
    Reject,
    decode_prepare,
    encode,
)
from farthing.ilp.reject import (
    AmountTooLarge,
    InsufficientTimeout,
    NextHopRejected,
    Rejected,
    TimedOut,
    Unreachable,
)
from farthing.ports.meter import Metric
from farthing.store.ledger import Peer

log = logging.getLogger("farthing")

Step = Callable[[Agent, IncomingPacket], Fulfill | None]


def check_expiry(agent: Agent, incoming: IncomingPacket) -> None:
    """First of all: nothing that happens after its expiry can be fulfilled."""
    left = incoming.milliseconds_left(agent.now_ms)
    if left <= 0:
        raise TimedOut("the packet has expired")
    if left < agent.settings.min_delivery_ms:
        raise InsufficientTimeout("too little time is left")


def check_amount(agent: Agent, incoming: IncomingPacket) -> None:
    maximum = incoming.peer.max_packet or agent.settings.max_packet
    if incoming.prepare.amount > maximum:
        raise AmountTooLarge(incoming.prepare.amount, maximum)


def deliver_here(agent: Agent, incoming: IncomingPacket) -> Fulfill | None:
    """What is addressed to us ends here: decode, verify, price, condition, store, fulfil."""
    if is_prefix(agent.settings.own_ilp_address, incoming.prepare.destination):
        return deliver(agent, incoming)
    return None


STEPS: Sequence[Step] = (check_expiry, check_amount, deliver_here, forward)


def handle(agent: Agent, peer: Peer, octets: bytes) -> bytes:
    """The reply to a Prepare from a peer: a Fulfill or a Reject, whatever happens."""
    started = time.perf_counter()
    reply = _run(agent, peer, octets)
    _measure(agent, reply, time.perf_counter() - started)
    return encode(reply)


def _run(agent: Agent, peer: Peer, octets: bytes) -> Fulfill | Reject:
    try:
        incoming = IncomingPacket(peer, decode_prepare(octets))
        for step in STEPS:
            fulfill = step(agent, incoming)
            if fulfill is not None:
                return fulfill
        raise Unreachable("no step took the packet")
    except Rejected as rejected:
        return _reject(agent, rejected.code, rejected.message, rejected.data)
    except NextHopRejected as rejected:
        return rejected.reject
    except InvalidPacket as error:
        return _reject(agent, Code.F01_INVALID_PACKET, str(error))
    except Exception:
        log.exception("a packet of peer %s failed", peer.id)
        agent.meter.count(Metric.INTERNAL_ERRORS)
        return _reject(agent, Code.T00_INTERNAL_ERROR, "internal error")


def _reject(agent: Agent, code: Code, message: str, data: bytes = b"") -> Reject:
    return Reject(code, agent.settings.own_ilp_address, message, data)


def _measure(agent: Agent, reply: Fulfill | Reject, seconds: float) -> None:
    if isinstance(reply, Fulfill):
        agent.meter.count(Metric.PACKETS_FULFILLED)
    else:
        agent.meter.count(Metric.PACKETS_REJECTED, code=str(reply.code))
    agent.meter.count(Metric.PACKET_MILLISECONDS, round(seconds * 1000))
