"""The story of a packet: every step that it takes, in order, and the one place that makes rejects.

Free steps come first, then steps that read the store, then steps that move money. A step raises
Rejected, returns the final reply, or returns None to continue with the next step.
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
    await_first_reply,
    choose_next_hop,
    hold_amount,
    is_of_child,
    make_onward_packet,
    send_onward,
    settle,
)
from farthing.connector.incoming import IncomingPacket
from farthing.connector.rate import check_free_rate, check_rate
from farthing.connector.receivers import has_segment, word_reject
from farthing.context import Agent
from farthing.ilp.address import is_prefix
from farthing.ilp.packet import Code, Fulfill, InvalidPacket, Reject, encode
from farthing.ilp.reject import NextHopRejected, Rejected
from farthing.ports.meter import Metric
from farthing.relay.refusals import note_refusal
from farthing.store.ledger import Peer

log = logging.getLogger("farthing")

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
    await_first_reply,
    choose_next_hop,
    make_onward_packet,
    hold_amount,
    send_onward,
    settle,
)


def handle(agent: Agent, peer: Peer, octets: bytes, request_id: str = "") -> bytes:
    """The reply to a Prepare from a peer: a Fulfill or a Reject, whatever happens."""
    started = time.perf_counter()
    packet = IncomingPacket(peer, octets, agent.now_ms, request_id)
    reply = reply_to(agent, packet, _steps)
    if not packet.answered_before:
        _measure(agent, reply, time.perf_counter() - started)
    encoded = encode(reply)
    if packet.claimed_request:
        keep_reply(agent, packet, encoded)
    return encoded


def _steps(agent: Agent, packet: IncomingPacket) -> Iterator[Step]:
    yield from INCOMING
    yield from FOR_US if _is_for_us(agent, packet.prepare.destination) else ONWARD


def _is_for_us(agent: Agent, destination: str) -> bool:
    """Whether the packet ends here. Below our address there are receivers of ours, and peers that
    take packets."""
    own = agent.settings.own_ilp_address
    if destination == own or not is_prefix(own, destination):
        return destination == own
    if has_segment(agent, destination):
        return True
    return not is_of_child(agent, destination)


def reply_to(agent: Agent, packet: IncomingPacket, steps: Steps) -> Fulfill | Reject:
    """Take the steps until one of them replies. The one place that turns failures into rejects."""
    try:
        for step in steps(agent, packet):
            reply = step(agent, packet)
            if reply is not None:
                return reply
        return _reject(agent, Code.F02_UNREACHABLE, "no step answered the packet")
    except Rejected as rejected:
        return _told(agent, packet, rejected.code, rejected.message, rejected.data)
    except NextHopRejected as rejected:
        return rejected.reject
    except InvalidPacket as error:
        return _reject(agent, Code.F01_INVALID_PACKET, str(error))
    except Exception:
        log.exception("a packet could not be handled", extra={"peer": packet.peer.id})
        agent.meter.count(Metric.INTERNAL_ERRORS)
        return _told(agent, packet, Code.T00_INTERNAL_ERROR, "internal error")


def _told(
    agent: Agent, packet: IncomingPacket, code: Code, message: str, data: bytes = b""
) -> Reject:
    """The reject in the form of the packet's own protocol."""
    if not data:
        message, data = word_reject(agent, packet, code, message)
    note_refusal(agent, "packet", f"{code} {message}", peer=packet.peer.id)
    return _reject(agent, code, message, data)


def _reject(agent: Agent, code: Code, message: str, data: bytes = b"") -> Reject:
    return Reject(code, agent.settings.own_ilp_address, message, data)


def _measure(agent: Agent, reply: Fulfill | Reject, seconds: float) -> None:
    if isinstance(reply, Fulfill):
        agent.meter.count(Metric.PACKETS_FULFILLED)
    else:
        agent.meter.count(Metric.PACKETS_REJECTED, code=str(reply.code))
    agent.meter.count(Metric.PACKET_MILLISECONDS, round(seconds * 1000))
