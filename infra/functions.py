"""One Lambda function of the relay: its code, its role with no more than it needs, its log."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as awslambda
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from farthing.settings import PREFIX
from farthing.store.table import Table
from infra.deployment import Deployment
from infra.gateway import Addresses, Gateways
from infra.permissions import (
    CALLING_THEMSELVES,
    KEY,
    POSTING,
    PURSE_TOKEN,
    SETTLEMENT_TOKEN,
    TABLES,
)
from infra.records import log_group

FOLDER = Path(__file__).parents[1] / "functions"
NOT_CODE = ["__pycache__", "*.pyc"]
# API Gateway waits for 29 seconds.
_SECONDS = 29


@dataclass(frozen=True)
class Surroundings:
    """What functions stand in: the same for all of them."""

    deployment: Deployment
    layer: awslambda.ILayerVersion
    tables: Mapping[Table, dynamodb.ITable]
    key: secretsmanager.ISecret
    gateways: Gateways
    addresses: Addresses


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
        )
        self.name = name
        _let_use_tables(role, name, around)
        _let_post(role, name, around)
        _let_read_secrets(role, name, around)
        _let_call_itself(role, name, full_name)


def _description(name: str) -> str:
    """The first sentence of the handler's own."""
    first = (FOLDER / name / "handler.py").read_text().split("\n", 1)[0]
    return first.strip('"')[:256]


def _environment(name: str, around: Surroundings) -> dict[str, str]:
    secrets = {}
    if name in KEY:
        secrets[f"{PREFIX}SECRET_KEY_ARN"] = around.key.secret_arn
    for setting, arn in _tokens(name, around).items():
        secrets[f"{PREFIX}{setting}_ARN"] = arn
    if secrets:
        # They are read once a container: a function that is changed gets new ones.
        secrets[f"{PREFIX}KEY_VERSION"] = str(around.deployment.key_version)
    return {
        **around.deployment.environment,
        f"{PREFIX}RELAY_URL": around.addresses.relay,
        f"{PREFIX}WEB_URL": around.addresses.web,
        f"{PREFIX}CONNECTIONS_URL": around.addresses.connections,
        **secrets,
    }


def _tokens(name: str, around: Surroundings) -> dict[str, str]:
    """The secrets with tokens that a function compares, by the names of the settings."""
    deployment = around.deployment
    given = {
        "SETTLEMENT_TOKEN": (SETTLEMENT_TOKEN, deployment.settlement_token_arn),
        "PURSE_TOKEN": (PURSE_TOKEN, deployment.purse_token_arn),
    }
    return {setting: arn for setting, (names, arn) in given.items() if arn and name in names}


def _let_use_tables(role: iam.Role, name: str, around: Surroundings) -> None:
    for table, actions in TABLES[name].items():
        role.add_to_policy(
            iam.PolicyStatement(
                actions=sorted(f"dynamodb:{action}" for action in actions),
                resources=[around.tables[table].table_arn],
            )
        )


def _let_post(role: iam.Role, name: str, around: Surroundings) -> None:
    if name in POSTING:
        stage = around.gateways.socket_stage.stage_name
        arn = Stack.of(role).format_arn(
            service="execute-api",
            resource=around.gateways.socket_api.api_id,
            resource_name=f"{stage}/*/@connections/*",
        )
        role.add_to_policy(
            iam.PolicyStatement(actions=["execute-api:ManageConnections"], resources=[arn])
        )


def _let_read_secrets(role: iam.Role, name: str, around: Surroundings) -> None:
    if name in KEY:
        around.key.grant_read(role)
    for arn in _tokens(name, around).values():
        role.add_to_policy(
            iam.PolicyStatement(actions=["secretsmanager:GetSecretValue"], resources=[arn])
        )


def _let_call_itself(role: iam.Role, name: str, full_name: str) -> None:
    if name in CALLING_THEMSELVES:
        # By its name: the function waits for its role, which then must not wait for it.
        arn = Stack.of(role).format_arn(
            service="lambda",
            resource="function",
            resource_name=full_name,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        role.add_to_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[arn]))
