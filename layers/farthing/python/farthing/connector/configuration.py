"""Step of a packet that asks for a peer's configuration (ILDCP): answered without the store."""

from farthing.connector.incoming import IncomingPacket
from farthing.context import Agent
from farthing.ilp import ildcp
from farthing.ilp.packet import Fulfill


def answer_configuration(agent: Agent, packet: IncomingPacket) -> Fulfill | None:
    if not ildcp.is_request(packet.prepare):
        return None
    settings, peer = agent.settings, packet.peer
    client = peer.ilp_address or ildcp.child_address(settings.own_ilp_address, peer.id)
    return ildcp.answer(client, settings.asset_code, settings.asset_scale)
