"""One URL for everything: CloudFront in front of both gateways.

A WebSocket API cannot answer plain HTTP, and Nostr wants the relay information document on the
relay's own URL (NIP-11). So whoever is not opening a socket is led to the HTTP API.
"""

from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, Fn, Stack
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudfront_origins as origins
from constructs import Construct

from infra.deployment import Deployment
from infra.gateway import STAGE, Addresses, Gateways
from infra.routes import edge_paths

CHOOSE_ORIGIN = Path(__file__).with_name("choose_origin.js")
_WEB = "web"  # the script knows it by this name


class FrontDoor(Construct):
    """The distribution, and the name it goes by."""

    def __init__(
        self, scope: Construct, id: str, deployment: Deployment, gateways: Gateways
    ) -> None:
        super().__init__(scope, id)
        socket = _origin(Fn.select(1, Fn.split("://", gateways.socket_api.api_endpoint)), "socket",
                         path=f"/{STAGE}")  # fmt: skip
        web = _origin(Fn.select(1, Fn.split("://", gateways.web_api.api_endpoint)), _WEB)
        self._distribution = cloudfront.Distribution(
            self,
            "Distribution",
            comment=f"{deployment.prefix}relay",
            default_behavior=_behavior(socket, [self._choice()]),
            additional_behaviors={path: _behavior(web) for path in edge_paths()},
            # WebSocket runs over HTTP/1.1, and CloudFront speaks both to viewers.
            http_version=cloudfront.HttpVersion.HTTP2,
            web_acl_id=deployment.web_acl_arn or None,
            **_named(self, deployment),
        )
        self.host = deployment.domain or self._distribution.domain_name
        CfnOutput(Stack.of(self), "EdgeDomain", value=self._distribution.domain_name)

    def _choice(self) -> cloudfront.FunctionAssociation:
        return cloudfront.FunctionAssociation(
            event_type=cloudfront.FunctionEventType.VIEWER_REQUEST,
            function=cloudfront.Function(
                self,
                "ChooseOrigin",
                code=cloudfront.FunctionCode.from_inline(CHOOSE_ORIGIN.read_text()),
                runtime=cloudfront.FunctionRuntime.JS_2_0,
            ),
        )


def _origin(host: str, id: str, path: str | None = None) -> origins.HttpOrigin:
    return origins.HttpOrigin(
        host,
        origin_id=id,
        origin_path=path,
        protocol_policy=cloudfront.OriginProtocolPolicy.HTTPS_ONLY,
        origin_ssl_protocols=[cloudfront.OriginSslPolicy.TLS_V1_2],
    )


def _behavior(
    origin: origins.HttpOrigin, functions: list[cloudfront.FunctionAssociation] | None = None
) -> cloudfront.BehaviorOptions:
    """Nothing is cached: what is read here changes with every event."""
    return cloudfront.BehaviorOptions(
        origin=origin,
        allowed_methods=cloudfront.AllowedMethods.ALLOW_ALL,
        cache_policy=cloudfront.CachePolicy.CACHING_DISABLED,
        origin_request_policy=cloudfront.OriginRequestPolicy.ALL_VIEWER_EXCEPT_HOST_HEADER,
        viewer_protocol_policy=cloudfront.ViewerProtocolPolicy.HTTPS_ONLY,
        function_associations=functions,
        compress=False,
    )


def _named(scope: Construct, deployment: Deployment) -> dict[str, Any]:
    if not deployment.domain:
        return {}
    certificate = acm.Certificate.from_certificate_arn(
        scope, "Certificate", deployment.certificate_arn
    )
    return {
        "domain_names": [deployment.domain],
        "certificate": certificate,
        "minimum_protocol_version": cloudfront.SecurityPolicyProtocol.TLS_V1_2_2021,
    }


class EdgeStack(Stack):
    """The gateways and, where the operator wants it, the one URL in front of them."""

    def __init__(self, scope: Construct, id: str, deployment: Deployment) -> None:
        super().__init__(scope, id)
        self.gateways = Gateways(self, "Gateways", deployment)
        self.front = (
            FrontDoor(self, "Front", deployment, self.gateways) if deployment.edge else None
        )
        self.addresses = self.public_addresses()
        CfnOutput(self, "RelayUrl", value=self.addresses.relay)
        CfnOutput(self, "IlpUrl", value=f"{self.addresses.web}/ilp")
        CfnOutput(self, "WebUrl", value=self.addresses.web)

    def public_addresses(self) -> Addresses:
        own = self.gateways.addresses()
        if self.front is None:
            return own
        host = self.front.host
        return Addresses(f"wss://{host}", f"https://{host}", own.connections)
