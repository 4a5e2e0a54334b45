"""Our own packets of amount 0 to other agents. They are routed as forwarded packets are."""

from datetime import UTC, datetime, timedelta

from farthing.connector.forwarding import find_next_hop, send_to
from farthing.context import Agent
from farthing.ilp.condition import condition_of
from farthing.ilp.packet import Fulfill, Prepare, to_milliseconds
from farthing.ilp.reject import Unreachable


def has_way(agent: Agent, destination: str) -> bool:
    peer = find_next_hop(agent, destination).peer
    return peer is not None and peer.takes_packets


def send_free(
    agent: Agent, destination: str, data: bytes, fulfillment: bytes, milliseconds: int
) -> Fulfill:
    """Send data in a packet of amount 0. Returns when the other side has fulfilled, and raises
    Rejected or NextHopRejected otherwise."""
    peer = find_next_hop(agent, destination).peer
    if peer is None or not peer.takes_packets:
        raise Unreachable(f"no route to {destination}")
    expires = datetime.fromtimestamp(agent.clock(), UTC) + timedelta(milliseconds=milliseconds)
    prepare = Prepare(
        amount=0,
        expires_at=to_milliseconds(expires),
        condition=condition_of(fulfillment),
        destination=destination,
        data=data,
    )
    return send_to(agent, peer, prepare)
