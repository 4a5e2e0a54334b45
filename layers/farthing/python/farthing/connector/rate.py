"""How many packets a peer sends in a minute.

Two counters hold the same limit. The counter of this process is free, so it is checked first. The
counter that all processes share costs a request, so it is read in parallel with the first read of
the store, and only if there are several processes.
"""

from collections import Counter

from farthing.connector.incoming import IncomingPacket
from farthing.context import Agent
from farthing.ilp.reject import RateLimited


class PacketRate:
    """Packets of each peer in the current minute, as this process sees them."""

    def __init__(self, _agent: Agent) -> None:
        self._minute = 0
        self._packets: Counter[str] = Counter()

    def count(self, peer_id: str, now: int) -> int:
        """Count a packet of a peer. Returns the number of packets in this minute, this one
        included."""
        minute = now // 60
        if minute != self._minute:
            self._minute, self._packets = minute, Counter()
        self._packets[peer_id] += 1
        return self._packets[peer_id]


def check_rate(agent: Agent, packet: IncomingPacket) -> None:
    packets = agent.part(PacketRate).count(packet.peer.id, packet.arrived_ms // 1000)
    check_count(agent, packets)


def check_free_rate(agent: Agent, packet: IncomingPacket) -> None:
    """Forwarding a packet of amount 0 costs us a request and earns nothing. So such packets have a
    separate limit, and are counted only here."""
    if packet.prepare.amount:
        return
    name, most = f"{packet.peer.id}#free", agent.settings.free_packets_per_minute
    packets = agent.part(PacketRate).count(name, agent.now)
    if packets <= most and not agent.alone:
        packets = agent.sessions.count_packet(name, agent.now)
    if packets > most:
        raise RateLimited(f"expected at most {most} packets of amount 0 to forward in a minute")


def count_shared(agent: Agent, packet: IncomingPacket) -> int:
    """Count a packet in the counter of all processes. Returns the number of packets in this
    minute."""
    return agent.sessions.count_packet(packet.peer.id, agent.now)


def check_count(agent: Agent, packets: int) -> None:
    most = agent.settings.packets_per_minute
    if packets > most:
        raise RateLimited(f"expected at most {most} packets in a minute")
