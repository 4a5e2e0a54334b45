"""The agent of a Lambda function, made from the function's environment and secrets."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from farthing.agent.relay_client import SocketRelays
from farthing.aws.broadcast_wakes import SqsBroadcastWakes
from farthing.aws.connections import GatewayConnections
from farthing.aws.meter import PowertoolsMeter
from farthing.aws.outbound import LambdaOutbound
from farthing.aws.recipients import SqsRecipients
from farthing.aws.wakes import SqsWakes
from farthing.context import Agent
from farthing.ports.broadcast_wakes import BroadcastWakes, NoBroadcastWakes
from farthing.ports.figures import Figures, NoFigures
from farthing.ports.hosts import HostRules
from farthing.ports.recipients import NoRecipientQueue, RecipientQueue
from farthing.ports.wakes import NoWakes, Wakes
from farthing.settings import PREFIX, Settings
from farthing.store.dynamodb import DynamoDBEngine


def make_agent() -> Agent:
    settings = Settings.from_env(with_secrets(os.environ))
    # Private hosts are allowed only on a test network, whose hosts have no certificates.
    private = settings.allow_private_hosts
    rules = HostRules(private, only_encrypted=not private)
    return Agent(
        settings=settings,
        engine=DynamoDBEngine(prefix=settings.table_prefix),
        connections=GatewayConnections(os.environ["FARTHING_CONNECTIONS_URL"]),
        outbound=LambdaOutbound(rules, function=os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")),
        relays=SocketRelays(rules),
        meter=PowertoolsMeter(settings.table_prefix),
        recipients=_recipients(os.environ.get("FARTHING_RECIPIENTS_QUEUE_URL", "")),
        wakes=_wakes(os.environ.get("FARTHING_DELIVERIES_QUEUE_URL", "")),
        broadcast_wakes=_broadcast_wakes(os.environ.get("FARTHING_BROADCASTS_QUEUE_URL", "")),
        figures=_figures(settings, os.environ.get("FARTHING_SOCKET_API_ID", "")),
    )


def _figures(settings: Settings, socket_api: str) -> Figures:
    """CloudWatch's figures, for the function that may read them."""
    if not socket_api:
        return NoFigures()
    from farthing.aws.figures import CloudWatchFigures

    return CloudWatchFigures(
        settings.table_prefix,
        socket_api=socket_api,
        web_api=os.environ["FARTHING_WEB_API_ID"],
        seconds=settings.figures_seconds,
    )


def _wakes(url: str) -> Wakes:
    """The queue of wakes, for functions that may send to it. Other functions send no wakes."""
    return SqsWakes(url) if url else NoWakes()


def _broadcast_wakes(url: str) -> BroadcastWakes:
    """The outbox's queue, for functions that may send to it. Other functions do not broadcast."""
    return SqsBroadcastWakes(lambda: url) if url else NoBroadcastWakes()


def _recipients(url: str) -> RecipientQueue:
    """The queue of recipients, for functions that may send to it. Other functions have no
    recipients."""
    return SqsRecipients(url) if url else NoRecipientQueue()


def read_secret(arn: str) -> str:
    from botocore.session import get_session

    client: Any = get_session().create_client("secretsmanager")
    text: str = client.get_secret_value(SecretId=arn)["SecretString"]
    return text


def read_parameter(name: str) -> str:
    from botocore.session import get_session

    client: Any = get_session().create_client("ssm")
    text: str = client.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]
    return text


def write_parameter(name: str, text: str | None) -> None:
    """Write an encrypted parameter; None deletes the parameter, if it exists."""
    from botocore.session import get_session

    client: Any = get_session().create_client("ssm")
    if text is not None:
        client.put_parameter(Name=name, Value=text, Type="SecureString", Overwrite=True)
        return
    with suppress(client.exceptions.ParameterNotFound):
        client.delete_parameter(Name=name)


def with_secrets(
    environment: Mapping[str, str],
    read: Callable[[str], str] = read_secret,
    read_parameter: Callable[[str], str] = read_parameter,
) -> dict[str, str]:
    """The environment with each `NAME_ARN` that names a secret, and each `NAME_PARAMETER` that
    names an encrypted parameter, replaced by `NAME`, its content.

    Secrets are read once per container. They are not put into the environment itself, which more
    people may read than may read a secret. A rotated secret takes effect in new containers.
    """
    plain = dict(environment)
    for suffix, reader in (("_ARN", read), ("_PARAMETER", read_parameter)):
        for name in sorted(environment):
            if name.startswith(PREFIX) and name.endswith(suffix):
                del plain[name]
                plain[name.removesuffix(suffix)] = reader(environment[name]).strip()
    return plain
