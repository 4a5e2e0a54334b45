"""The story of a packet: every step that it takes, in order, and the one place that makes rejects.

Steps that cost nothing come before those that ask the store, and those before anything that moves
money. A step raises Rejected, returns the reply that ends the story, or returns None to go on.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from farthing.connector.arrival import (
    check_amount,
    check_expiry,
    claim_request,
    decode,
    keep_reply,
)
from farthing.connector.configuration import answer_configuration
from farthing.connector.delivery import (
    check_condition,
    check_ledger,
    check_purchase,
    choose_receiver,
    commit_purchase,
    fulfil,
)
from farthing.connector.forwarding import (
    answer_repeat,
    choose_next_hop,
    hold_amount,
    make_onward_packet,
    send_onward,
    settle,
)
from farthing.connector.incoming import IncomingPacket
from farthing.connector.rate import check_free_rate, check_rate
from farthing.context import Agent
from farthing.ilp.address import is_prefix
from farthing.ilp.packet import Code, Fulfill, InvalidPacket, Reject, encode
from farthing.ilp.reject import NextHopRejected, Rejected
from farthing.ports.meter import Metric
from farthing.store.ledger import Peer

log = logging.getLogger("farthing")

_CODES = frozenset(str(code) for code in Code)
_UNKNOWN_CODE = "unknown"

Step = Callable[[Agent, IncomingPacket], Fulfill | Reject | None]
Steps = Callable[[Agent, IncomingPacket], Iterable[Step]]

INCOMING: Sequence[Step] = (
    check_rate,
    claim_request,
    decode,
    check_expiry,
    check_amount,
)
FOR_US: Sequence[Step] = (
    choose_receiver,
    check_purchase,
    check_condition,
    check_ledger,
    commit_purchase,
    fulfil,
)
ONWARD: Sequence[Step] = (
    answer_configuration,
    check_free_rate,
    answer_repeat,
    choose_next_hop,
    make_onward_packet,
    hold_amount,
    send_onward,
    settle,
)


def handle(agent: Agent, peer: Peer, octets: bytes, request_id: str = "") -> bytes:
    """The reply to a Prepare from a peer: a Fulfill or a Reject, whatever happens."""
    started = time.perf_counter()
    packet = IncomingPacket(peer, octets, request_id)
    reply = reply_to(agent, packet, _steps)
    if not packet.answered_before:
        _measure(agent, reply, time.perf_counter() - started)
    encoded = encode(reply)
    if packet.claimed_request:
        keep_reply(agent, packet, encoded)
    return encoded


def _steps(agent: Agent, packet: IncomingPacket) -> Iterator[Step]:
    yield from INCOMING
    is_ours = is_prefix(agent.settings.own_ilp_address, packet.prepare.destination)
    yield from FOR_US if is_ours else ONWARD


def reply_to(agent: Agent, packet: IncomingPacket, steps: Steps) -> Fulfill | Reject:
    """Take the steps until one of them replies. The one place that turns failures into rejects."""
    try:
        for step in steps(agent, packet):
            reply = step(agent, packet)
            if reply is not None:
                return reply
        return _reject(agent, Code.F02_UNREACHABLE, "no step took the packet")
    except Rejected as rejected:
        return _reject(agent, rejected.code, rejected.message, rejected.data)
    except NextHopRejected as rejected:
        return rejected.reject
    except InvalidPacket as error:
        return _reject(agent, Code.F01_INVALID_PACKET, str(error))
    except Exception:
        log.exception("a packet failed", extra={"peer": packet.peer.id})
        agent.meter.count(Metric.INTERNAL_ERRORS)
        return _reject(agent, Code.T00_INTERNAL_ERROR, "internal error")


def _reject(agent: Agent, code: Code, message: str, data: bytes = b"") -> Reject:
    return Reject(code, agent.settings.own_ilp_address, message, data)


def _measure(agent: Agent, reply: Fulfill | Reject, seconds: float) -> None:
    if isinstance(reply, Fulfill):
        agent.meter.count(Metric.PACKETS_FULFILLED)
    else:
        # A next hop may reject with any three letters. Only codes that exist become metrics.
        code = str(reply.code) if reply.code in _CODES else _UNKNOWN_CODE
        agent.meter.count(Metric.PACKETS_REJECTED, code=code)
    agent.meter.count(Metric.PACKET_MILLISECONDS, round(seconds * 1000))
