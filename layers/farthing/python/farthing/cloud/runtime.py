"""The agent that handlers work for: made from the environment in Lambda, installed elsewhere."""

import os

from farthing.agent import Agent

_installed: Agent | None = None


def install(agent: Agent | None) -> None:
    """Have all handlers of this process work for an agent made elsewhere."""
    global _installed
    _installed = agent


def agent() -> Agent:
    if _installed is None:
        install(_from_environment())
    assert _installed is not None
    return _installed


def warm_up() -> None:
    """In Lambda, build the agent while the container starts, when CPU is free of charge."""
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        agent()


def _from_environment() -> Agent:
    from farthing.cloud.connections import GatewayConnections
    from farthing.cloud.meter import PowertoolsMeter
    from farthing.cloud.outbound import HttpOutbound
    from farthing.settings import Settings
    from farthing.store.dynamodb import DynamoDBEngine

    settings = Settings.from_env(os.environ)
    return Agent(
        settings=settings,
        engine=DynamoDBEngine(prefix=settings.table_prefix),
        connections=GatewayConnections(os.environ["FARTHING_CONNECTIONS_URL"]),
        outbound=HttpOutbound(),
        meter=PowertoolsMeter(),
    )
