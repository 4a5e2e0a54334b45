"""The relay: a function for each verb, and the routes, streams, queues and schedules of each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aws_cdk import CfnOutput, CustomResource, Duration, Stack, triggers
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as awslambda
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from farthing.store.table import STREAMED, Table
from farthing.surface import (
    CONNECT,
    DEFAULT,
    DEFAULT_FUNCTION,
    IDENTITY_FUNCTION,
    MESSAGES,
    QUEUES,
    ROUTES,
    SCHEDULES,
    STREAMS,
    Queue,
    Stream,
)
from infra.deployment import Deployment
from infra.functions import RelayFunction, Surroundings
from infra.gateway import Addresses
from infra.layer import LibraryLayer
from infra.layer_contents import LAMBDA
from infra.origin_check import OriginCheck
from infra.records import removal_policy
from infra.shared import stream_name, table_arn, tell, told

_STREAM_SECONDS = 60
# Long enough to read the relays of all followed keys.
_UPKEEP_SECONDS = 300
# If the function cannot start, CloudFormation gets no answer, and would wait for an hour.
_IDENTITY_SECONDS = 120
# The attributes of the agent that the identity function returns.
_ATTRIBUTES = ("PublicKey", "IlpAddress", "DerivedKeys")


class RelayStack(Stack):
    def __init__(
        self,
        scope: Construct,
        id: str,
        deployment: Deployment,
        *,
        only_by_edge: bool,
        layer_platform: str = LAMBDA,
    ) -> None:
        """`only_by_edge`: the APIs refuse requests that did not come through CloudFront."""
        super().__init__(scope, id, stack_name=f"{deployment.prefix}relay")
        self._deployment = deployment
        self._socket_api_id = self._told("socket-api-id")
        self._web_api_id = self._told("web-api-id")
        self._around = Surroundings(
            deployment,
            LibraryLayer(self, "Library", platform=layer_platform),
            self._told("key-arn"),
            Addresses(
                self._told("relay-url"), self._told("web-url"), self._told("connections-url")
            ),
            self._socket_api_id,
            self._web_api_id,
            {queue.name: self._queue(queue) for queue in QUEUES},
        )
        self.functions: dict[str, RelayFunction] = {}
        self._around = replace(self._around, identity=self._identity())
        self._check = (
            OriginCheck(self, "Origin", deployment, self._socket_api_id, self._web_api_id)
            if only_by_edge
            else None
        )
        self._add_socket_routes()
        self._add_web_routes()
        self._add_streams()
        self._add_queues()
        self._add_schedules()

    def _told(self, name: str) -> str:
        return told(self, self._deployment, name)

    def function(self, name: str, seconds: int = 29) -> RelayFunction:
        if name not in self.functions:
            self.functions[name] = RelayFunction(self, name, self._around, seconds=seconds)
        return self.functions[name]

    def _add_socket_routes(self) -> None:
        api = apigateway.WebSocketApi.from_web_socket_api_attributes(
            self, "Socket", web_socket_id=self._socket_api_id
        )
        for message in MESSAGES:
            id = _id(message.key)
            route = apigateway.WebSocketRoute(
                self,
                f"{id}Route",
                web_socket_api=api,
                route_key=message.key,
                integration=integrations.WebSocketLambdaIntegration(
                    f"{id}Integration", self.function(message.function)
                ),
                return_response=message.answered,
            )
            if message.key == CONNECT and self._check is not None:
                self._check.guard_socket(route)

    def _add_web_routes(self) -> None:
        api = apigateway.HttpApi.from_http_api_attributes(self, "Web", http_api_id=self._web_api_id)
        keys = {key: route.function for route in ROUTES for key in route.keys}
        made: dict[str, integrations.HttpLambdaIntegration] = {}
        for key, name in {**keys, DEFAULT: DEFAULT_FUNCTION}.items():
            integration = made.setdefault(
                name, integrations.HttpLambdaIntegration(f"{_id(name)}Web", self.function(name))
            )
            route = apigateway.HttpRoute(
                self,
                f"{_id(key)}Route" if key != DEFAULT else "AnythingElseRoute",
                http_api=api,
                route_key=_web_route_key(key),
                integration=integration,
            )
            if self._check is not None:
                self._check.guard_web(route)

    def _add_streams(self) -> None:
        for stream in STREAMS:
            self._consume(stream, self._failures(stream.failures))

    def _failures(self, name: str) -> sqs.Queue:
        """A queue for records or messages that were given up."""
        return sqs.Queue(
            self,
            _id(name),
            queue_name=f"{self._deployment.prefix}{name}",
            retention_period=Duration.days(14),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            removal_policy=removal_policy(self._deployment),
        )

    def _consume(self, stream: Stream, failures: sqs.Queue) -> None:
        position = awslambda.StartingPosition
        self.function(stream.function, _STREAM_SECONDS).add_event_source(
            sources.DynamoEventSource(
                self._streamed(stream),
                starting_position=(
                    position.TRIM_HORIZON if stream.from_beginning else position.LATEST
                ),
                batch_size=100,
                parallelization_factor=stream.parallel,
                bisect_batch_on_error=True,
                report_batch_item_failures=True,
                # The age is the limit that counts: failed attempts are repeated at once.
                retry_attempts=10_000,
                max_record_age=Duration.minutes(stream.patience_minutes),
                on_failure=sources.SqsDlq(failures),
                filters=_filters(stream.table),
            )
        )

    def _streamed(self, stream: Stream) -> dynamodb.ITable:
        return dynamodb.Table.from_table_attributes(
            self,
            f"{_id(stream.function)}Source",
            table_arn=table_arn(self, self._deployment, stream.table),
            table_stream_arn=self._told(stream_name(stream.table)),
        )

    def _queue(self, queue: Queue) -> sqs.Queue:
        return sqs.Queue(
            self,
            _id(queue.name) + "Queue",
            queue_name=f"{self._deployment.prefix}{queue.name}",
            # Six times the timeout of a call, as Lambda recommends.
            visibility_timeout=Duration.seconds(6 * queue.seconds),
            retention_period=Duration.days(1),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            dead_letter_queue=sqs.DeadLetterQueue(
                max_receive_count=queue.attempts, queue=self._failures(queue.failures)
            ),
        )

    def _add_queues(self) -> None:
        for queue in QUEUES:
            self.function(queue.function, queue.seconds).add_event_source(
                sources.SqsEventSource(
                    self._around.queues[queue.name],
                    # One message per call: a failed message does not repeat others.
                    batch_size=1,
                    max_concurrency=queue.parallel,
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
                    # Without waiting: a run may be under way, and only one may run at a time.
                    invocation_type=triggers.InvocationType.EVENT,
                    timeout=Duration.seconds(_UPKEEP_SECONDS),
                )

    def _identity(self) -> dict[str, str]:
        """The owner's public keys, which are known only after the secret is created."""
        identity = CustomResource(
            self,
            "Agent",
            resource_type="Custom::Identity",
            service_token=self.function(IDENTITY_FUNCTION).function_arn,
            service_timeout=Duration.seconds(_IDENTITY_SECONDS),
            properties={
                "Key": self._around.key_arn,
                "Version": self._deployment.key_version,
                "Address": self._deployment.settings.get("ilp_address", ""),
                # CloudFormation calls the function again only if a property has changed.
                "Attributes": list(_ATTRIBUTES),
            },
        )
        # The role's policy must exist first: the function reads the key when it starts.
        identity.node.add_dependency(self.function(IDENTITY_FUNCTION).role)
        public_key = identity.get_att_string("PublicKey")
        tell(self, self._deployment, "public-key", public_key)
        CfnOutput(self, "PublicKey", value=public_key)
        CfnOutput(self, "IlpAddress", value=identity.get_att_string("IlpAddress"))
        return {name: identity.get_att_string(name) for name in ("PublicKey", "DerivedKeys")}


def _id(key: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in key).split()
    return "".join(word.capitalize() for word in words) or "Root"


def _web_route_key(key: str) -> apigateway.HttpRouteKey:
    if key == DEFAULT:
        return apigateway.HttpRouteKey.DEFAULT
    method, path = key.split(" ")
    return apigateway.HttpRouteKey.with_(path, apigateway.HttpMethod[method])


def _filters(table: Table) -> Sequence[Mapping[str, Any]]:
    """Filters for records that the handlers use: no deletions and no expired items."""
    wanted: dict[str, object] = {"eventName": awslambda.FilterRule.or_("INSERT", "MODIFY")}
    if all(prefixes := STREAMED[table]):
        begins = [rule for prefix in prefixes for rule in awslambda.FilterRule.begins_with(prefix)]
        wanted["dynamodb"] = {"Keys": {"pk": {"S": begins}}}
    return [awslambda.FilterCriteria.filter(wanted)]
