"""The agent that handlers work for: made from the environment in Lambda, installed elsewhere."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from farthing.agent import Agent
from farthing.settings import PREFIX

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
    """In Lambda, build the agent while the container starts: then even a small function has a whole
    processor."""
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        agent()


def _from_environment() -> Agent:
    from farthing.cloud.connections import GatewayConnections
    from farthing.cloud.meter import PowertoolsMeter
    from farthing.cloud.outbound import LambdaOutbound
    from farthing.cloud.relays import SocketRelays
    from farthing.settings import Settings
    from farthing.store.dynamodb import DynamoDBEngine

    settings = Settings.from_env(with_secrets(os.environ))
    return Agent(
        settings=settings,
        engine=DynamoDBEngine(prefix=settings.table_prefix),
        connections=GatewayConnections(os.environ["FARTHING_CONNECTIONS_URL"]),
        outbound=LambdaOutbound(function=os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")),
        relays=SocketRelays(),
        meter=PowertoolsMeter(),
    )


def read_secret(arn: str) -> str:
    from botocore.session import get_session

    client: Any = get_session().create_client("secretsmanager")
    text: str = client.get_secret_value(SecretId=arn)["SecretString"]
    return text


def with_secrets(
    environment: Mapping[str, str], read: Callable[[str], str] = read_secret
) -> dict[str, str]:
    """The environment with each `NAME_ARN` that names a secret replaced by `NAME`, its content.

    Once a container: what stands in a function's environment can be read by more people than may
    read a secret, and a rotated secret comes into force with the next containers.
    """
    secrets = {name for name in environment if name.startswith(PREFIX) and name.endswith("_ARN")}
    plain = {name: value for name, value in environment.items() if name not in secrets}
    return plain | {
        name.removesuffix("_ARN"): read(environment[name]).strip() for name in sorted(secrets)
    }
