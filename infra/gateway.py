"""The two gateways: a WebSocket API for clients, an HTTP API for peers and pages."""

import json
from dataclasses import dataclass

from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.deployment import Deployment
from infra.records import log_group

# What others use to route arrays; where it does not evaluate, `$default` serves every verb.
VERB = "$request.body.[0]"
STAGE = "relay"
# No header and no body: tokens and events stay out of the log.
_LOGGED = ("requestId", "requestTime", "routeKey", "status", "responseLatency", "identity.sourceIp")


@dataclass(frozen=True)
class Addresses:
    """Where clients, peers and functions find the gateways."""

    relay: str
    web: str
    connections: str


class Gateways(Construct):
    """Routes are added by those who serve them."""

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
        self._log_access(log_group(self, "Access", deployment))

    def _log_access(self, group: logs.ILogGroup) -> None:
        stage = self.web_stage.node.default_child
        assert isinstance(stage, apigateway.CfnStage)
        stage.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=group.log_group_arn,
            format=json.dumps({name: f"$context.{name}" for name in _LOGGED}),
        )

    def addresses(self) -> Addresses:
        return Addresses(
            relay=self.socket_stage.url,
            web=self.web_api.api_endpoint,
            connections=self.socket_stage.callback_url,
        )
