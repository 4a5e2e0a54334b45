"""How fast peers send, as far as this process sees it. The count that all processes share, where
there are others, costs a request and comes late (see `delivery`): this one costs nothing, and so
comes before anything that does, also for packets that are worth nothing."""

from collections import Counter

from farthing.context import Agent


class PacketRate:
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


def packet_rate(agent: Agent) -> PacketRate:
    """The agent's own."""
    return agent.part(_packet_rate)


def _packet_rate(_agent: Agent) -> PacketRate:
    return PacketRate()
