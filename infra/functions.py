"""One Lambda function of the relay: its code, its log, and a role with only the rights it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as awslambda
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from farthing.settings import PREFIX
from farthing.surface import IDENTITY_FUNCTION, QUEUES
from infra.deployment import Deployment
from infra.gateway import STAGE, Addresses
from infra.permissions import (
    CALLING_THEMSELVES,
    DERIVED_KEYS,
    KEY,
    POSTING,
    PURSE_TOKEN,
    SENDING,
    SETTLEMENT_TOKEN,
    TABLES,
    WATCHING,
)
from infra.records import log_group
from infra.shared import function_arn, table_arn

FOLDER = Path(__file__).parents[1] / "functions"
NOT_CODE = ["__pycache__", "*.pyc"]
# API Gateway waits for 29 seconds.
_SECONDS = 29


@dataclass(frozen=True)
class Surroundings:
    """What all functions share: layer, addresses, keys and queues."""

    deployment: Deployment
    layer: awslambda.ILayerVersion
    key_arn: str
    addresses: Addresses
    socket_api_id: str
    web_api_id: str
    queues: Mapping[str, sqs.IQueue]
    # The attributes that the identity function returns; empty until they are known.
    identity: Mapping[str, str] = field(default_factory=dict)


class RelayFunction(awslambda.Function):
    def __init__(
        self, scope: Construct, name: str, around: Surroundings, *, seconds: int = _SECONDS
    ) -> None:
        deployment = around.deployment
        id = "".join(part.capitalize() for part in name.split("_"))
        full_name = f"{deployment.prefix}{name}"
        group = log_group(scope, f"{id}Log", deployment, f"/aws/lambda/{full_name}")
        role = iam.Role(scope, f"{id}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        group.grant_write(role)
        super().__init__(
            scope,
            id,
            function_name=full_name,
            description=_description(name),
            code=awslambda.Code.from_asset(str(FOLDER / name), exclude=NOT_CODE),
            handler="handler.handler",
            runtime=awslambda.Runtime.PYTHON_3_13,
            architecture=awslambda.Architecture.ARM_64,
            layers=[around.layer],
            role=role,
            log_group=group,
            logging_format=awslambda.LoggingFormat.JSON,
            memory_size=deployment.memory_of.get(name, deployment.memory),
            timeout=Duration.seconds(seconds),
            reserved_concurrent_executions=deployment.concurrency.get(name),
            environment=_environment(name, around),
            recursive_loop=_recursive_loop(name),
        )
        self.name = name
        _let_use_tables(role, name, around)
        _let_post(role, name, around)
        _let_send(role, name, around)
        _let_read_secrets(role, name, around)
        _let_use_derived_keys(role, name, around)
        _let_call_itself(role, name, around)
        _let_watch(role, name)


def _description(name: str) -> str:
    """The first line of the handler's docstring."""
    first = (FOLDER / name / "handler.py").read_text().split("\n", 1)[0]
    return first.strip('"')[:256]


def _recursive_loop(name: str) -> awslambda.RecursiveLoop | None:
    """A consumer that sends to its own queue, to go on later. Lambda would take its sixteenth
    message in a row for a loop and drop it. Attempts, the queue's concurrency and the brake limit
    it."""
    goes_on = any(queue.function == name and queue.name in _queues_of(name) for queue in QUEUES)
    return awslambda.RecursiveLoop.ALLOW if goes_on else None


def _environment(name: str, around: Surroundings) -> dict[str, str]:
    variables = {
        **around.deployment.environment,
        f"{PREFIX}RELAY_URL": around.addresses.relay,
        f"{PREFIX}WEB_URL": around.addresses.web,
        f"{PREFIX}CONNECTIONS_URL": around.addresses.connections,
    }
    for queue in _queues_of(name):
        variables[f"{PREFIX}{queue.upper()}_QUEUE_URL"] = around.queues[queue].queue_url
    if name in KEY:
        variables[f"{PREFIX}SECRET_KEY_ARN"] = around.key_arn
    else:
        variables[f"{PREFIX}PUBLIC_KEY"] = around.identity["PublicKey"]
        if name in DERIVED_KEYS:
            variables[f"{PREFIX}DERIVED_KEYS_PARAMETER"] = derived_keys_name(around.deployment)
        else:
            variables[f"{PREFIX}DERIVED_KEYS"] = around.identity["DerivedKeys"]
    if name in WATCHING:
        variables[f"{PREFIX}SOCKET_API_ID"] = around.socket_api_id
        variables[f"{PREFIX}WEB_API_ID"] = around.web_api_id
    if name == IDENTITY_FUNCTION:
        variables["DERIVED_KEYS"] = derived_keys_name(around.deployment)
    for setting, arn in _tokens(name, around).items():
        variables[f"{PREFIX}{setting}_ARN"] = arn
    if any(variable.endswith(("_ARN", "_PARAMETER")) for variable in variables):
        # Secrets are read once per container. A changed variable makes Lambda start new containers.
        variables[f"{PREFIX}KEY_VERSION"] = str(around.deployment.key_version)
    return variables


def _queues_of(name: str) -> list[str]:
    return [queue for queue, senders in SENDING.items() if name in senders]


def _let(role: iam.Role, actions: Sequence[str], *resources: str) -> None:
    role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources)))


def _tokens(name: str, around: Surroundings) -> dict[str, str]:
    """ARNs of the secrets with tokens that a function checks, by the names of the settings."""
    deployment = around.deployment
    given = {
        "SETTLEMENT_TOKEN": (SETTLEMENT_TOKEN, deployment.settlement_token_arn),
        "PURSE_TOKEN": (PURSE_TOKEN, deployment.purse_token_arn),
    }
    return {setting: arn for setting, (names, arn) in given.items() if arn and name in names}


def _let_use_tables(role: iam.Role, name: str, around: Surroundings) -> None:
    for table, actions in TABLES[name].items():
        arn = table_arn(Stack.of(role), around.deployment, table)
        _let(role, sorted(f"dynamodb:{action}" for action in actions), arn)


def _let_post(role: iam.Role, name: str, around: Surroundings) -> None:
    if name in POSTING:
        arn = Stack.of(role).format_arn(
            service="execute-api",
            resource=around.socket_api_id,
            resource_name=f"{STAGE}/*/@connections/*",
        )
        _let(role, ["execute-api:ManageConnections"], arn)


def _let_send(role: iam.Role, name: str, around: Surroundings) -> None:
    for queue in _queues_of(name):
        _let(role, ["sqs:SendMessage"], around.queues[queue].queue_arn)


def _let_read_secrets(role: iam.Role, name: str, around: Surroundings) -> None:
    if name in KEY:
        _let(role, ["secretsmanager:GetSecretValue"], around.key_arn)
    for arn in _tokens(name, around).values():
        _let(role, ["secretsmanager:GetSecretValue"], arn)


def _let_use_derived_keys(role: iam.Role, name: str, around: Surroundings) -> None:
    stack = Stack.of(role)
    arn = stack.format_arn(
        service="ssm", resource="parameter", resource_name=derived_keys_name(around.deployment)
    )
    if name in DERIVED_KEYS:
        _let(role, ["ssm:GetParameter"], arn)
    if name == IDENTITY_FUNCTION:
        _let(role, ["ssm:DeleteParameter", "ssm:PutParameter"], arn)


def derived_keys_name(deployment: Deployment) -> str:
    """Name of the encrypted parameter that the identity function writes. CloudFormation cannot
    create one, and a template must not contain secrets."""
    return f"{deployment.prefix}derived-keys"


def _let_call_itself(role: iam.Role, name: str, around: Surroundings) -> None:
    if name in CALLING_THEMSELVES:
        # An ARN made from the name: a reference would make role and function depend on each other.
        arn = function_arn(Stack.of(role), around.deployment, name)
        _let(role, ["lambda:InvokeFunction"], arn)


def _let_watch(role: iam.Role, name: str) -> None:
    if name in WATCHING:
        _let(role, ["cloudwatch:GetMetricData"], "*")  # this action has no resources
