"""A client comes and goes."""

import secrets

from farthing.context import Agent
from farthing.relay.sealed_sets import SEALED


def connect(agent: Agent, connection_id: str, host: str, *, is_aether: bool = False) -> None:
    """`is_aether` marks the connection: it is sent no Nostr frames."""
    challenge = secrets.token_hex(16)
    agent.sessions.connect(connection_id, challenge, host, agent.now, is_aether=is_aether)


def disconnect(agent: Agent, connection_id: str) -> None:
    SEALED.forget_connection(connection_id)
    agent.sessions.disconnect(connection_id)
