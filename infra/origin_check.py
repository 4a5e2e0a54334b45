"""The authorizer of both APIs: checks that a request came through CloudFront, before a handler."""

from aws_cdk import Duration, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as awslambda
from constructs import Construct

from infra.deployment import Deployment
from infra.edge import ORIGIN_HEADER, VIEWER_HEADER
from infra.functions import FOLDER, NOT_CODE
from infra.records import log_group
from infra.shared import told

# How long an answer is cached for all requests of a viewer.
_REMEMBERED = Duration.hours(1)


class OriginCheck(Construct):
    def __init__(
        self,
        scope: Construct,
        id: str,
        deployment: Deployment,
        socket_api_id: str,
        web_api_id: str,
    ) -> None:
        super().__init__(scope, id)
        self._function = self._make_function(deployment)
        self._socket = self._authorizer("SocketAuthorizer", socket_api_id)
        self._web = self._authorizer("WebAuthorizer", web_api_id)
        self._web.authorizer_payload_format_version = "2.0"
        self._web.enable_simple_responses = True
        self._web.authorizer_result_ttl_in_seconds = _REMEMBERED.to_seconds()
        # API Gateway itself refuses requests without these headers. A WebSocket API caches no
        # answers, and its header names are case-sensitive: there the function checks them.
        self._web.identity_source = [
            f"$request.header.{ORIGIN_HEADER}",
            f"$request.header.{VIEWER_HEADER}",
        ]

    def _make_function(self, deployment: Deployment) -> awslambda.Function:
        """The function is called for every connection. It uses no library, to start quickly."""
        name = f"{deployment.prefix}origin"
        group = log_group(self, "Log", deployment, f"/aws/lambda/{name}")
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        group.grant_write(role)
        secret = told(Stack.of(self), deployment, "origin-secret")
        role.add_to_policy(
            iam.PolicyStatement(actions=["secretsmanager:GetSecretValue"], resources=[secret])
        )
        return awslambda.Function(
            self,
            "Function",
            function_name=name,
            description="Checks that a request came through CloudFront",
            code=awslambda.Code.from_asset(str(FOLDER / "origin"), exclude=NOT_CODE),
            handler="handler.handler",
            runtime=awslambda.Runtime.PYTHON_3_13,
            architecture=awslambda.Architecture.ARM_64,
            role=role,
            log_group=group,
            timeout=Duration.seconds(10),
            memory_size=256,
            environment={
                "FARTHING_ORIGIN_SECRET": secret,
                "FARTHING_KEY_VERSION": str(deployment.key_version),
            },
        )

    def _authorizer(self, id: str, api_id: str) -> apigateway.CfnAuthorizer:
        stack = Stack.of(self)
        authorizer = apigateway.CfnAuthorizer(
            self,
            id,
            api_id=api_id,
            name="origin",
            authorizer_type="REQUEST",
            authorizer_uri=(
                f"arn:{stack.partition}:apigateway:{stack.region}:lambda:path/2015-03-31/functions/"
                f"{self._function.function_arn}/invocations"
            ),
        )
        self._function.add_permission(
            f"{id}Permission",
            principal=iam.ServicePrincipal("apigateway.amazonaws.com"),
            source_arn=stack.format_arn(
                service="execute-api",
                resource=api_id,
                resource_name=f"authorizers/{authorizer.ref}",
            ),
        )
        return authorizer

    def guard_socket(self, route: apigateway.WebSocketRoute) -> None:
        _guard(route, self._socket)

    def guard_web(self, route: apigateway.HttpRoute) -> None:
        _guard(route, self._web)


def _guard(route: Construct, authorizer: apigateway.CfnAuthorizer) -> None:
    resource = route.node.default_child
    assert isinstance(resource, apigateway.CfnRoute)
    resource.authorization_type = "CUSTOM"
    resource.authorizer_id = authorizer.ref
