"""The rate that a peer is held to by all processes together. What one process sees by itself is
refused before (see `pace`), and where there is one only, that is all."""

from farthing.connector.incoming import IncomingPacket
from farthing.context import Agent
from farthing.ilp.reject import RateLimited


def count_packet(agent: Agent, incoming: IncomingPacket) -> int:
    """Count a packet of a peer. How many came in this minute, as far as others have a say in it."""
    return 0 if agent.alone else agent.sessions.count_packet(incoming.peer.id, agent.now)


def check_rate(agent: Agent, packets: int) -> None:
    most = agent.settings.packets_per_minute
    if packets > most:
        raise RateLimited(f"at most {most} packets a minute")
