"""How many packets a peer sends in a minute.

Two counters hold the same limit. This process's own costs nothing, so it is looked at before
anything that does. The counter that all processes share costs a request, so it is asked beside the
first read of the store, and only where there are other processes.
"""

from collections import Counter

from farthing.connector.incoming import IncomingPacket
from farthing.context import Agent
from farthing.ilp.reject import RateLimited


class PacketRate:
    """Packets of each peer in the current minute, as this process sees them."""

    def __init__(self) -> None:
        self._minute = 0
        self._packets: Counter[str] = Counter()

    def count(self, peer_id: str, now: int) -> int:
        """Count a packet of a peer. How many came in this minute, this one included."""
        minute = now // 60
        if minute != self._minute:
            self._minute, self._packets = minute, Counter()
        self._packets[peer_id] += 1
        return self._packets[peer_id]


def check_rate(agent: Agent, packet: IncomingPacket) -> None:
    check_count(agent, agent.part(_packet_rate).count(packet.peer.id, agent.now))


def check_free_rate(agent: Agent, packet: IncomingPacket) -> None:
    """A packet of amount 0 that we forward costs us a request and brings nothing: such packets have
    a rate of their own. They are counted here, and not with the others."""
    if packet.prepare.amount:
        return
    name, most = f"{packet.peer.id}#free", agent.settings.free_packets_per_minute
    packets = agent.part(_packet_rate).count(name, agent.now)
    if packets <= most and not agent.alone:
        packets = agent.sessions.count_packet(name, agent.now)
    if packets > most:
        raise RateLimited(f"at most {most} packets of amount 0 a minute are forwarded")


def count_shared(agent: Agent, packet: IncomingPacket) -> int:
    """Count a packet where all processes do. How many came in this minute; 0 if we are alone."""
    return 0 if agent.alone else agent.sessions.count_packet(packet.peer.id, agent.now)


def check_count(agent: Agent, packets: int) -> None:
    most = agent.settings.packets_per_minute
    if packets > most:
        raise RateLimited(f"at most {most} packets a minute")


def _packet_rate(_agent: Agent) -> PacketRate:
    return PacketRate()
