"""The DynamoDB tables, and the secret with the owner's key. Tables are on demand, restorable,
protected against deletion, and have streams where needed."""

from string import ascii_lowercase, ascii_uppercase, punctuation

from aws_cdk import CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from farthing.store.attributes import PK, SK
from farthing.store.table import EXPIRES, STREAMED, VOLATILE, Table
from infra.deployment import Deployment
from infra.records import removal_policy
from infra.shared import stream_name, tell

_NOT_HEX = ascii_uppercase + ascii_lowercase[6:] + punctuation


class StorageStack(Stack):
    """One DynamoDB table for each table of the port, and the secret with the owner's key."""

    def __init__(self, scope: Construct, id: str, deployment: Deployment) -> None:
        super().__init__(scope, id, stack_name=f"{deployment.prefix}storage")
        self._deployment = deployment
        self.tables = {table: self._table(table) for table in Table}
        self.key = self.make_key()
        for table in STREAMED:
            stream = self.tables[table].table_stream_arn
            assert stream is not None
            tell(self, deployment, stream_name(table), stream)
        tell(self, deployment, "key-arn", self.key.secret_arn)
        CfnOutput(self, "KeyArn", value=self.key.secret_arn, description="The owner's key")

    def _table(self, table: Table) -> dynamodb.Table:
        kept = table not in VOLATILE  # sessions are worthless after their connections end
        streamed = dynamodb.StreamViewType.NEW_AND_OLD_IMAGES if table in STREAMED else None
        return dynamodb.Table(
            self,
            table.value.capitalize(),
            table_name=f"{self._deployment.prefix}{table.value}",
            partition_key=dynamodb.Attribute(name=PK, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=SK, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute=EXPIRES,
            stream=streamed,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=kept
            ),
            deletion_protection=kept and self._deployment.keeps,
            removal_policy=removal_policy(self._deployment) if kept else RemovalPolicy.DESTROY,
        )

    def make_key(self) -> secretsmanager.ISecret:
        """The operator's key, or one of 64 hexadecimal digits that Secrets Manager generates. Any
        number from 1 to below the curve's order is a key: all but one in 2^128 random ones are."""
        if given := self._deployment.secret_key_arn:
            return secretsmanager.Secret.from_secret_complete_arn(self, "Key", given)
        return secretsmanager.Secret(
            self,
            "Key",
            secret_name=f"{self._deployment.prefix}key",
            description="The owner's Nostr key: anybody who has it can act as the agent",
            removal_policy=removal_policy(self._deployment),
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=64,
                exclude_characters=_NOT_HEX,
                require_each_included_type=False,
            ),
        )
