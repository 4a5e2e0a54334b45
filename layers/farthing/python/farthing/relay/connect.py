"""The opening and the end of a client's connection."""

import secrets

from farthing.context import Agent
from farthing.relay.sealed_sets import SEALED


def connect(agent: Agent, connection_id: str, host: str, *, is_aether: bool = False) -> None:
    """`is_aether` marks the connection: no Nostr frames are sent on it."""
    challenge = secrets.token_hex(16)
    agent.sessions.connect(connection_id, challenge, host, agent.now, is_aether=is_aether)


def disconnect(agent: Agent, connection_id: str) -> None:
    SEALED.forget_connection(connection_id)
    agent.sessions.disconnect(connection_id)
