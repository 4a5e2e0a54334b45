"""The limits that hold for a peer: its own record's, or the settings'."""

from farthing.context import Agent
from farthing.store.ledger import Peer


def max_balance(agent: Agent, peer: Peer) -> int:
    """What the peer may owe us. 0 is a limit: such a peer pays in advance."""
    return agent.settings.max_balance if peer.max_balance is None else peer.max_balance


def max_packet(agent: Agent, peer: Peer) -> int:
    return agent.settings.max_packet if peer.max_packet is None else peer.max_packet
