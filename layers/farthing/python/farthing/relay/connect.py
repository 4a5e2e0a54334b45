"""A client comes and goes."""

import secrets

from farthing.agent import Agent


def connect(agent: Agent, connection_id: str, host: str) -> None:
    agent.sessions.connect(connection_id, secrets.token_hex(16), host, agent.now)


def disconnect(agent: Agent, connection_id: str) -> None:
    agent.sessions.disconnect(connection_id)
