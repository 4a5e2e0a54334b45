"""The tables of an emulated DynamoDB. In the cloud, the stacks make them."""

from typing import Any

from pynamodb.connection.base import Connection

from farthing.store.dynamodb_requests import ATTRIBUTE_DEFINITIONS, KEY_SCHEMA
from farthing.store.table import EXPIRES, STREAMED, Table


def create_tables(connection: Connection, prefix: str = "") -> None:
    """All tables, on demand."""
    for table in Table:
        name = f"{prefix}{table}"
        streamed: dict[str, Any] = {
            "stream_enabled": True,
            "stream_view_type": "NEW_AND_OLD_IMAGES",
        }
        connection.create_table(
            name,
            attribute_definitions=ATTRIBUTE_DEFINITIONS,
            key_schema=KEY_SCHEMA,
            billing_mode="PAY_PER_REQUEST",
            stream_specification=streamed if table in STREAMED else None,
        )
        connection.client.get_waiter("table_exists").wait(TableName=name)
        connection.update_time_to_live(name, EXPIRES)
