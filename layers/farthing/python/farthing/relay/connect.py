"""A client comes and goes."""

import secrets

from farthing.context import Agent
from farthing.relay.sealed_sets import SEALED


def connect(agent: Agent, connection_id: str, host: str) -> None:
    agent.sessions.connect(connection_id, secrets.token_hex(16), host, agent.now)


def disconnect(agent: Agent, connection_id: str) -> None:
    SEALED.forget_connection(connection_id)
    agent.sessions.disconnect(connection_id)
