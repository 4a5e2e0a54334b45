"""Values that stacks share: by names that are known beforehand, and by SSM parameters for values
that only AWS knows.

No stack exports a value. CloudFormation does not let an export change or disappear while another
stack imports it, so a rotated key, a new domain or a renamed function could never be deployed. A
parameter may change: stacks that read it get the new value when they are deployed after it.
"""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_ssm as ssm

from farthing.store.table import Table
from infra.deployment import Deployment


def tell(stack: Stack, deployment: Deployment, name: str, value: str) -> None:
    ssm.StringParameter(
        stack,
        f"{_id(name)}Parameter",
        parameter_name=f"{deployment.prefix}{name}",
        string_value=value,
    )


def told(stack: Stack, deployment: Deployment, name: str) -> str:
    """The value that a stack deployed earlier has stored under the name."""
    return ssm.StringParameter.value_for_string_parameter(stack, f"{deployment.prefix}{name}")


def stream_name(table: Table) -> str:
    """The parameter with a stream's ARN, which cannot be known beforehand: it has a timestamp."""
    return f"{table.value}-stream-arn"


def table_arn(stack: Stack, deployment: Deployment, table: Table) -> str:
    return stack.format_arn(
        service="dynamodb",
        resource="table",
        resource_name=f"{deployment.prefix}{table.value}",
    )


def function_arn(stack: Stack, deployment: Deployment, name: str) -> str:
    return stack.format_arn(
        service="lambda",
        resource="function",
        resource_name=f"{deployment.prefix}{name}",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )


def _id(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))
