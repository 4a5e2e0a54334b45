"""The relay: a function for each verb, the routes and streams that call it, and its schedules."""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import CfnOutput, CustomResource, Duration, Stack, triggers
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as awslambda
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from farthing.store.table import STREAMED, Table
from farthing.surface import (
    DEFAULT,
    DEFAULT_FUNCTION,
    IDENTITY_FUNCTION,
    MESSAGES,
    ROUTES,
    SCHEDULES,
    STREAMS,
    Stream,
)
from infra.deployment import Deployment
from infra.edge import EdgeStack
from infra.functions import RelayFunction, Surroundings
from infra.layer import LibraryLayer
from infra.layer_contents import LAMBDA
from infra.records import removal_policy
from infra.storage import StorageStack

_STREAM_SECONDS = 60
# Long enough to ask the relays of all who are followed.
_UPKEEP_SECONDS = 300
# A function that cannot even start answers nobody, and CloudFormation would wait for an hour.
_IDENTITY_SECONDS = 120


class RelayStack(Stack):
    def __init__(
        self,
        scope: Construct,
        id: str,
        deployment: Deployment,
        storage: StorageStack,
        edge: EdgeStack,
        *,
        layer_platform: str = LAMBDA,
    ) -> None:
        super().__init__(scope, id)
        self._around = Surroundings(
            deployment,
            LibraryLayer(self, "Library", platform=layer_platform),
            storage.tables,
            storage.key,
            edge.gateways,
            edge.addresses,
        )
        self.functions: dict[str, RelayFunction] = {}
        self.failures: dict[str, sqs.Queue] = {}
        self._add_socket_routes()
        self._add_web_routes()
        self._add_streams()
        self._add_schedules()
        self.public_key = self._identity()

    def function(self, name: str, seconds: int = 29) -> RelayFunction:
        if name not in self.functions:
            self.functions[name] = RelayFunction(self, name, self._around, seconds=seconds)
        return self.functions[name]

    def _add_socket_routes(self) -> None:
        for message in MESSAGES:
            id = _id(message.key)
            apigateway.WebSocketRoute(
                self,
                f"{id}Route",
                web_socket_api=self._around.gateways.socket_api,
                route_key=message.key,
                integration=integrations.WebSocketLambdaIntegration(
                    f"{id}Integration", self.function(message.function)
                ),
                return_response=message.answered,
            )

    def _add_web_routes(self) -> None:
        keys = {key: route.function for route in ROUTES for key in route.keys}
        made: dict[str, integrations.HttpLambdaIntegration] = {}
        for key, name in {**keys, DEFAULT: DEFAULT_FUNCTION}.items():
            integration = made.setdefault(
                name, integrations.HttpLambdaIntegration(f"{_id(name)}Web", self.function(name))
            )
            apigateway.HttpRoute(
                self,
                f"{_id(key)}Route" if key != DEFAULT else "AnythingElseRoute",
                http_api=self._around.gateways.web_api,
                route_key=_web_route_key(key),
                integration=integration,
            )

    def _add_streams(self) -> None:
        for stream in STREAMS:
            self.failures[stream.function] = self._failures(stream)
            self._consume(stream, self.failures[stream.function])

    def _failures(self, stream: Stream) -> sqs.Queue:
        return sqs.Queue(
            self,
            f"{_id(stream.function)}Failures",
            queue_name=f"{self._around.deployment.prefix}{stream.failures}",
            retention_period=Duration.days(14),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            removal_policy=removal_policy(self._around.deployment),
        )

    def _consume(self, stream: Stream, failures: sqs.Queue) -> None:
        position = awslambda.StartingPosition
        self.function(stream.function, _STREAM_SECONDS).add_event_source(
            sources.DynamoEventSource(
                self._around.tables[stream.table],
                starting_position=(
                    position.TRIM_HORIZON if stream.from_beginning else position.LATEST
                ),
                batch_size=100,
                parallelization_factor=stream.parallel,
                bisect_batch_on_error=True,
                report_batch_item_failures=True,
                # The bound is the age: attempts come as fast as they fail.
                retry_attempts=10_000,
                max_record_age=Duration.minutes(stream.patience_minutes),
                on_failure=sources.SqsDlq(failures),
                filters=_filters(stream.table),
            )
        )

    def _add_schedules(self) -> None:
        for schedule in SCHEDULES:
            function = self.function(schedule.function, _UPKEEP_SECONDS)
            events.Rule(
                self,
                f"{_id(schedule.function)}Schedule",
                schedule=events.Schedule.rate(Duration.minutes(schedule.minutes)),
                targets=[targets.LambdaFunction(function, retry_attempts=0)],
            )
            if schedule.at_start:
                triggers.Trigger(
                    self,
                    "Announce",
                    handler=function,
                    # Not waited for: a round may be under way, and only one may run at a time.
                    invocation_type=triggers.InvocationType.EVENT,
                    timeout=Duration.seconds(_UPKEEP_SECONDS),
                )

    def _identity(self) -> str:
        """The owner's public key, which nobody knows before the secret is there."""
        deployment = self._around.deployment
        identity = CustomResource(
            self,
            "Agent",
            resource_type="Custom::Identity",
            service_token=self.function(IDENTITY_FUNCTION).function_arn,
            service_timeout=Duration.seconds(_IDENTITY_SECONDS),
            properties={
                "Key": self._around.key.secret_arn,
                "Version": deployment.key_version,
                "Address": deployment.settings.get("ilp_address", ""),
            },
        )
        # Its policy first: the key is read while the function starts.
        identity.node.add_dependency(self.function(IDENTITY_FUNCTION).role)
        public_key = identity.get_att_string("PublicKey")
        CfnOutput(self, "PublicKey", value=public_key)
        CfnOutput(self, "IlpAddress", value=identity.get_att_string("IlpAddress"))
        return public_key


def _id(key: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in key).split()
    return "".join(word.capitalize() for word in words) or "Root"


def _web_route_key(key: str) -> apigateway.HttpRouteKey:
    if key == DEFAULT:
        return apigateway.HttpRouteKey.DEFAULT
    method, path = key.split(" ")
    return apigateway.HttpRouteKey.with_(path, apigateway.HttpMethod[method])


def _filters(table: Table) -> Sequence[Mapping[str, Any]]:
    """Only records that the handlers take: deletions and what expires are none of them."""
    wanted: dict[str, object] = {"eventName": awslambda.FilterRule.or_("INSERT", "MODIFY")}
    if all(prefixes := STREAMED[table]):
        begins = [rule for prefix in prefixes for rule in awslambda.FilterRule.begins_with(prefix)]
        wanted["dynamodb"] = {"Keys": {"pk": {"S": begins}}}
    return [awslambda.FilterCriteria.filter(wanted)]
