"""The tables and the key that `cdk deploy` makes: what would be missed if it were wrong."""

import random
from typing import Any

import pytest

from farthing.settings import Settings
from farthing.store.table import STREAMED, VOLATILE, Table
from tests.infra.conftest import Stacks

KEPT = [table for table in Table if table not in VOLATILE]


def tables(stacks: Stacks, prefix: str = "farthing-") -> dict[str, dict[str, Any]]:
    found = stacks.of_type("AWS::DynamoDB::Table").values()
    return {each["Properties"]["TableName"].removeprefix(prefix): each for each in found}


def test_there_is_one_for_each_table_of_the_port(production: Stacks) -> None:
    assert set(tables(production)) == set(Table)


@pytest.mark.parametrize("table", list(Table))
def test_keys_money_and_time_to_live(production: Stacks, table: Table) -> None:
    properties = tables(production)[table]["Properties"]
    keys = {key["AttributeName"]: key["KeyType"] for key in properties["KeySchema"]}
    assert keys == {"pk": "HASH", "sk": "RANGE"}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires", "Enabled": True}


@pytest.mark.parametrize("table", list(Table))
def test_only_streamed_tables_have_a_stream(production: Stacks, table: Table) -> None:
    stream = tables(production)[table]["Properties"].get("StreamSpecification")
    assert stream == ({"StreamViewType": "NEW_AND_OLD_IMAGES"} if table in STREAMED else None)


@pytest.mark.parametrize("table", KEPT)
def test_what_is_kept_can_be_restored_and_is_not_deleted(production: Stacks, table: Table) -> None:
    resource = tables(production)[table]
    recovery = resource["Properties"]["PointInTimeRecoverySpecification"]
    assert recovery["PointInTimeRecoveryEnabled"] is True
    assert resource["Properties"]["DeletionProtectionEnabled"] is True
    assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"


@pytest.mark.parametrize("table", list(Table))
def test_a_deployment_that_is_to_leave_nothing_leaves_nothing(small: Stacks, table: Table) -> None:
    resource = tables(small, "small-")[table]
    assert resource["DeletionPolicy"] == "Delete"
    assert resource["Properties"].get("DeletionProtectionEnabled") in (None, False)


class TestKey:
    def test_what_secrets_manager_draws_is_a_key(self, production: Stacks) -> None:
        (secret,) = production.of_type("AWS::SecretsManager::Secret", "storage").values()
        drawing = secret["Properties"]["GenerateSecretString"]
        printable = [chr(code) for code in range(33, 127)]
        left = [each for each in printable if each not in drawing["ExcludeCharacters"]]

        assert "".join(sorted(left)) == "0123456789abcdef"
        assert drawing["RequireEachIncludedType"] is False  # a draw of digits alone is fine
        drawn = "".join(random.Random(1).choices(left, k=drawing["PasswordLength"]))
        assert len(Settings(secret_key=drawn).pubkey) == 64

    def test_it_outlives_the_stack(self, production: Stacks) -> None:
        (secret,) = production.of_type("AWS::SecretsManager::Secret", "storage").values()
        assert secret["DeletionPolicy"] == "Retain"

    def test_one_that_is_given_is_used_and_none_is_made(self, named: Stacks) -> None:
        assert named.of_type("AWS::SecretsManager::Secret", "storage") == {}
        (ilp,) = [
            each["Environment"]["Variables"]
            for each in named.properties("AWS::Lambda::Function")
            if each.get("FunctionName") == "farthing-ilp"
        ]
        assert ilp["FARTHING_SECRET_KEY_ARN"].endswith(":secret:mine-abcdef")
