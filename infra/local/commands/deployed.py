"""A deployed agent from an operator's machine: `farthing --cloud ...` works on its tables, with the
settings of its functions and the AWS credentials of the caller."""

from collections.abc import Callable, Mapping
from typing import Any

from farthing.aws.environment import read_secret, with_secrets
from farthing.settings import PREFIX, Settings

# The function that takes payments has every setting that a command needs.
_FUNCTION = "ilp"


class NotDeployed(Exception):
    """The deployment does not exist, or these credentials may not read it."""


def function_environment(name: str) -> Mapping[str, str]:
    """The variables of a Lambda function."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import get_session

    try:
        client: Any = get_session().create_client("lambda")
        found = client.get_function_configuration(FunctionName=name)
    except (BotoCoreError, ClientError) as error:
        raise NotDeployed(f"cannot read the settings of {name}: {error}") from None
    variables: dict[str, str] = found.get("Environment", {}).get("Variables", {})
    return variables


def queue_url(settings: Settings, name: str) -> str:
    """The URL of one of the deployment's queues."""
    from botocore.session import get_session

    client: Any = get_session().create_client("sqs")
    url: str = client.get_queue_url(QueueName=f"{settings.table_prefix}{name}")["QueueUrl"]
    return url


def deployed_settings(
    environment: Mapping[str, str],
    environment_of: Callable[[str], Mapping[str, str]] = function_environment,
    read: Callable[[str], str] = read_secret,
) -> Settings:
    """The settings of the deployment whose prefix the caller's environment names."""
    prefix = environment.get(f"{PREFIX}TABLE_PREFIX") or Settings.table_prefix
    variables = with_secrets(environment_of(f"{prefix}{_FUNCTION}"), read)
    return Settings.from_env(variables, deployed=True)
