"""Whether resources are kept when stacks are deleted, and log groups with their retention."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.deployment import Deployment


def removal_policy(deployment: Deployment) -> RemovalPolicy:
    return RemovalPolicy.RETAIN if deployment.keeps else RemovalPolicy.DESTROY


def log_group(
    scope: Construct, id: str, deployment: Deployment, name: str | None = None
) -> logs.LogGroup:
    group = logs.LogGroup(scope, id, log_group_name=name, removal_policy=removal_policy(deployment))
    resource = group.node.default_child
    assert isinstance(resource, logs.CfnLogGroup)
    resource.retention_in_days = deployment.log_days
    return group
