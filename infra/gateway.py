"""The two gateways: a WebSocket API for clients, an HTTP API for peers and pages."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import RemovalPolicy
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.deployment import Deployment
from infra.records import log_group

# Selects a route by the verb of a Nostr message. If it finds none, `$default` serves every verb.
VERB = "$request.body.[0]"
STAGE = "relay"
# No header and no body: tokens and events stay out of the log. Behind CloudFront, the source IP is
# CloudFront's, and the authorizer names the viewer's address.
_LOGGED = ("requestId", "requestTime", "routeKey", "status", "identity.sourceIp")
_WEB_LOGGED = (*_LOGGED, "responseLatency")
_SOCKET_LOGGED = (*_LOGGED, "eventType", "connectionId")
_LOG_WRITER = "service-role/AmazonAPIGatewayPushToCloudWatchLogs"


@dataclass(frozen=True)
class Addresses:
    """The URLs of the gateways for clients, peers and functions."""

    relay: str
    web: str
    connections: str


class Gateways(Construct):
    """The two APIs. The relay stack adds their routes."""

    def __init__(self, scope: Construct, id: str, deployment: Deployment) -> None:
        super().__init__(scope, id)
        throttle = apigateway.ThrottleSettings(
            rate_limit=deployment.throttle_rate, burst_limit=deployment.throttle_burst
        )
        self.socket_api = apigateway.WebSocketApi(
            self, "Socket", api_name=f"{deployment.prefix}socket", route_selection_expression=VERB
        )
        self.socket_stage = apigateway.WebSocketStage(
            self,
            "SocketStage",
            web_socket_api=self.socket_api,
            stage_name=STAGE,
            auto_deploy=True,
            detailed_metrics_enabled=deployment.route_metrics,
            throttle=throttle,
        )
        self.web_api = apigateway.HttpApi(
            self, "Web", api_name=f"{deployment.prefix}web", create_default_stage=False
        )
        self.web_stage = apigateway.HttpStage(
            self,
            "WebStage",
            http_api=self.web_api,
            auto_deploy=True,
            detailed_metrics_enabled=deployment.route_metrics,
            throttle=throttle,
        )
        _log_access(self.web_stage, log_group(self, "Access", deployment), _WEB_LOGGED)
        _log_access(self.socket_stage, log_group(self, "SocketAccess", deployment), _SOCKET_LOGGED)
        self.socket_stage.node.add_dependency(self._log_account())

    def _log_account(self) -> rest.CfnAccount:
        """The account's setting that lets a WebSocket API write a log. It is kept when the stack is
        deleted: another deployment in the region may need it."""
        role = iam.Role(
            self,
            "LogWriter",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(_LOG_WRITER)],
        )
        account = rest.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)
        role.apply_removal_policy(RemovalPolicy.RETAIN)
        account.apply_removal_policy(RemovalPolicy.RETAIN)
        return account

    def addresses(self) -> Addresses:
        return Addresses(
            relay=self.socket_stage.url,
            web=self.web_api.api_endpoint,
            connections=self.socket_stage.callback_url,
        )


def _log_access(stage: apigateway.IStage, group: logs.ILogGroup, logged: Sequence[str]) -> None:
    resource = stage.node.default_child
    assert isinstance(resource, apigateway.CfnStage)
    names = {name: f"$context.{name}" for name in logged}
    resource.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
        destination_arn=group.log_group_arn,
        format=json.dumps({**names, "viewer": "$context.authorizer.viewer"}),
    )
