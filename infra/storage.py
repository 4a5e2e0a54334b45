"""The tables as the design draws them: on demand, restorable, protected, streamed as needed."""

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from farthing.store.attributes import PK, SK
from farthing.store.table import EXPIRES, STREAMED, VOLATILE, Table


class StorageStack(Stack):
    """One DynamoDB table for each table of the port."""

    def __init__(self, scope: Construct, id: str, *, prefix: str, **more: object) -> None:
        super().__init__(scope, id, **more)  # type: ignore[arg-type]
        self.tables = {table: self._table(table, prefix) for table in Table}

    def _table(self, table: Table, prefix: str) -> dynamodb.Table:
        keeps = table not in VOLATILE  # sessions die with their connections
        streamed = dynamodb.StreamViewType.NEW_AND_OLD_IMAGES if table in STREAMED else None
        return dynamodb.Table(
            self,
            table.value.capitalize(),
            table_name=f"{prefix}{table.value}",
            partition_key=dynamodb.Attribute(name=PK, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=SK, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute=EXPIRES,
            stream=streamed,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=keeps
            ),
            deletion_protection=keeps,
            removal_policy=RemovalPolicy.RETAIN if keeps else RemovalPolicy.DESTROY,
        )
