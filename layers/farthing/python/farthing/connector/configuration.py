"""Step of a packet that asks for a peer's configuration (ILDCP): answered without the store."""

from farthing.connector.incoming import IncomingPacket
from farthing.context import Agent
from farthing.ilp import ildcp
from farthing.ilp.packet import Fulfill
from farthing.store.ledger import Peer


def answer_configuration(agent: Agent, packet: IncomingPacket) -> Fulfill | None:
    if not ildcp.is_request(packet.prepare):
        return None
    settings, peer = agent.settings, packet.peer
    return ildcp.answer(address_of(agent, peer), settings.asset_code, settings.asset_scale)


def address_of(agent: Agent, peer: Peer) -> str:
    """The peer's own address, or else the one below ours that we tell the peer."""
    return peer.ilp_address or ildcp.child_address(agent.settings.own_ilp_address, peer.id)
