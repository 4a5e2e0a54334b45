"""One URL for everything: CloudFront in front of both gateways.

A WebSocket API cannot answer plain HTTP, and Nostr needs the relay information document at the
relay's own URL (NIP-11). So requests that cannot open a WebSocket go to the HTTP API. Both APIs
have addresses of their own, where clients could avoid the distribution's web ACL. So CloudFront
adds a secret header, and the APIs refuse requests without it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, Fn, RemovalPolicy, Stack
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudfront_origins as origins
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.deployment import Deployment
from infra.gateway import STAGE, Addresses, Gateways
from infra.page import BUCKET, PageBucket
from infra.shared import tell

CHOOSE_ORIGIN = Path(__file__).with_name("choose_origin.js")
_WEB = "web"  # the script knows it by this name
# The headers that the authorizer reads (functions/origin).
ORIGIN_HEADER, VIEWER_HEADER = "x-farthing-origin", "x-farthing-viewer"


class FrontDoor(Construct):
    """The distribution, and its host name."""

    def __init__(
        self, scope: Construct, id: str, deployment: Deployment, gateways: Gateways
    ) -> None:
        super().__init__(scope, id)
        self.secret = secretsmanager.Secret(
            self,
            "OriginSecret",
            secret_name=f"{deployment.prefix}origin",
            description="The secret header that CloudFront sends to the APIs",
            removal_policy=RemovalPolicy.DESTROY,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=64, exclude_punctuation=True
            ),
        )
        self.page = PageBucket(self, "Page", deployment) if deployment.page else None
        socket, web = self._origins(gateways)
        choice = self._choice()
        self._distribution = cloudfront.Distribution(
            self,
            "Distribution",
            comment=f"{deployment.prefix}relay",
            default_behavior=_behavior(socket, choice, self.page),
            # The script may choose only an origin that a behaviour names.
            additional_behaviors={
                "/ilp": _behavior(web, choice),
                **(self.page.behaviors() if self.page else {}),
            },
            # CloudFront supports WebSocket over HTTP/1.1 only. With h2 enabled, it would choose h2
            # for a client that offers both, and then refuse the WebSocket.
            http_version=cloudfront.HttpVersion.HTTP1_1,
            web_acl_id=deployment.web_acl_arn or None,
            **_named(self, deployment),
        )
        self.host = deployment.domain or self._distribution.domain_name
        CfnOutput(Stack.of(self), "EdgeDomain", value=self._distribution.domain_name)

    def _origins(self, gateways: Gateways) -> tuple[origins.HttpOrigin, origins.HttpOrigin]:
        # A reference that CloudFormation resolves: the template does not hold the secret.
        shown = {ORIGIN_HEADER: self.secret.secret_value.unsafe_unwrap()}
        socket, web = gateways.socket_api.api_endpoint, gateways.web_api.api_endpoint
        return (
            _origin(_host(socket), "socket", shown, path=f"/{STAGE}"),
            _origin(_host(web), _WEB, shown),
        )

    def _choice(self) -> cloudfront.FunctionAssociation:
        return cloudfront.FunctionAssociation(
            event_type=cloudfront.FunctionEventType.VIEWER_REQUEST,
            function=cloudfront.Function(
                self,
                "ChooseOrigin",
                code=cloudfront.FunctionCode.from_inline(_script(has_page=self.page is not None)),
                runtime=cloudfront.FunctionRuntime.JS_2_0,
            ),
        )


def _script(*, has_page: bool) -> str:
    """The script that chooses an origin. Without a page there is no bucket to send requests to."""
    script = CHOOSE_ORIGIN.read_text()
    return script if has_page else script.replace("HAS_PAGE = true", "HAS_PAGE = false")


def _host(url: str) -> str:
    return Fn.select(1, Fn.split("://", url))


def _origin(
    host: str, id: str, headers: Mapping[str, str], path: str | None = None
) -> origins.HttpOrigin:
    return origins.HttpOrigin(
        host,
        origin_id=id,
        origin_path=path,
        custom_headers=headers,
        protocol_policy=cloudfront.OriginProtocolPolicy.HTTPS_ONLY,
        origin_ssl_protocols=[cloudfront.OriginSslPolicy.TLS_V1_2],
    )


def _behavior(
    origin: origins.HttpOrigin,
    choice: cloudfront.FunctionAssociation,
    page: PageBucket | None = None,
) -> cloudfront.BehaviorOptions:
    """Nothing is cached: answers change with every event."""
    return cloudfront.BehaviorOptions(
        response_headers_policy=page.headers if page else None,
        origin=origin,
        allowed_methods=cloudfront.AllowedMethods.ALLOW_ALL,
        cache_policy=cloudfront.CachePolicy.CACHING_DISABLED,
        origin_request_policy=cloudfront.OriginRequestPolicy.ALL_VIEWER_EXCEPT_HOST_HEADER,
        viewer_protocol_policy=cloudfront.ViewerProtocolPolicy.HTTPS_ONLY,
        function_associations=[choice],
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
    """The gateways and, if `edge` is set, CloudFront in front of them."""

    def __init__(self, scope: Construct, id: str, deployment: Deployment) -> None:
        super().__init__(scope, id, stack_name=f"{deployment.prefix}edge")
        self.gateways = Gateways(self, "Gateways", deployment)
        self.front = (
            FrontDoor(self, "Front", deployment, self.gateways) if deployment.edge else None
        )
        self.addresses = self.public_addresses()
        told = {
            "socket-api-id": self.gateways.socket_api.api_id,
            "web-api-id": self.gateways.web_api.api_id,
            "relay-url": self.addresses.relay,
            "web-url": self.addresses.web,
            "connections-url": self.addresses.connections,
        }
        if self.front is not None and self.front.page is not None:
            told[BUCKET] = self.front.page.bucket.bucket_name
        if self.front is not None:
            told["origin-secret"] = self.front.secret.secret_arn
        for name, value in told.items():
            tell(self, deployment, name, value)
        CfnOutput(self, "RelayUrl", value=self.addresses.relay)
        CfnOutput(self, "IlpUrl", value=f"{self.addresses.web}/ilp")
        CfnOutput(self, "WebUrl", value=self.addresses.web)

    @property
    def is_only_way(self) -> bool:
        """Whether the APIs refuse requests that did not come through CloudFront."""
        return self.front is not None

    def public_addresses(self) -> Addresses:
        own = self.gateways.addresses()
        if self.front is None:
            return own
        host = self.front.host
        return Addresses(f"wss://{host}", f"https://{host}", own.connections)
