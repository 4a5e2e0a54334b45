"""A deployment that runs can be changed into any other: no update is refused by CloudFormation.

CloudFormation refuses to take away or change an exported value that another stack imports, and to
make a resource whose name is taken. Stacks are updated one after the other, in the order of their
dependencies, so between two of them the old and the new stand side by side.
"""

import json
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.infra.conftest import Stacks
from tests.infra.synthesis import UPDATES

ORDER = ("storage", "edge", "relay", "page", "analytics", "operations")
# The properties by which a resource is named for the whole account and region.
NAMES = (
    "AlarmName", "BucketName", "DashboardName", "FunctionName", "LogGroupName", "QueueName",
    "RoleName", "TableName", "TopicName", "Name",
)  # fmt: skip

Place = tuple[str, str]


@pytest.fixture(scope="session")
def variants(assemblies: Path) -> dict[str, Stacks]:
    return {name: Stacks(assemblies / name) for name in UPDATES}


def exports(template: dict[str, Any]) -> dict[str, str]:
    """Name of each export, as text: its value."""
    return {
        json.dumps(output["Export"]["Name"]): json.dumps(output["Value"])
        for output in template.get("Outputs", {}).values()
        if "Export" in output
    }


def imports(value: Any) -> Iterator[str]:
    """Names of the exports that a template imports."""
    if isinstance(value, dict):
        if "Fn::ImportValue" in value:
            yield json.dumps(value["Fn::ImportValue"])
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from imports(each)


def refusals(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Why CloudFormation would refuse to turn the old templates into the new ones, in order."""
    found = []
    for place, stack in enumerate(ORDER):
        if stack not in old or stack not in new:
            continue
        still_old = [name for name in ORDER[place + 1 :] if name in old]
        used = {name for later in still_old for name in imports(old[later])}
        before, after = exports(old[stack]), exports(new[stack])
        found += [
            f"{stack} exports {name}, which is in use"
            for name in used & set(before)
            if before[name] != after.get(name)
        ]
    return found


def test_the_check_sees_what_cloudformation_refuses() -> None:
    exporting = {"Outputs": {"X": {"Value": "1", "Export": {"Name": "x"}}}}
    changed = {"Outputs": {"X": {"Value": "2", "Export": {"Name": "x"}}}}
    importing = {"Resources": {"R": {"Properties": [{"Fn::ImportValue": "x"}]}}}
    old = {"relay": exporting, "operations": importing}
    assert refusals(old, old) == []
    assert refusals(old, {"relay": changed, "operations": importing})
    assert refusals(old, {"relay": {}, "operations": {}})


def test_any_deployment_can_become_any_other(variants: dict[str, Stacks]) -> None:
    pairs = list(permutations(variants, 2))
    assert len(pairs) >= 50
    refused = {
        f"{old} to {new}": why
        for old, new in pairs
        if (why := refusals(variants[old].templates, variants[new].templates))
    }
    assert refused == {}


@pytest.mark.parametrize("variant", UPDATES)
def test_no_attribute_of_a_custom_resource_is_exported(
    variants: dict[str, Stacks], variant: str
) -> None:
    """It may change with every deployment."""
    for template in variants[variant].templates.values():
        custom = {
            id for id, each in template["Resources"].items() if each["Type"].startswith("Custom::")
        }
        values = " ".join(exports(template).values())
        assert not [id for id in custom if f'"{id}"' in values]


@pytest.mark.parametrize("variant", UPDATES)
def test_what_a_stack_asks_for_was_told_before(variants: dict[str, Stacks], variant: str) -> None:
    stacks = variants[variant]
    told: set[str] = set()
    for name in (name for name in ORDER if name in stacks.templates):
        assert set(stacks.asked(name).values()) <= told
        told |= {
            each["Name"] for each in stacks.properties("AWS::SSM::Parameter", name)
        }  # fmt: skip


def named(stacks: Stacks) -> dict[tuple[str, str], Place]:
    """Where each resource stands that has a name of its own."""
    return {
        (resource["Type"], name): (stack, id)
        for stack, template in stacks.templates.items()
        for id, resource in template["Resources"].items()
        for key in NAMES
        if isinstance(name := resource.get("Properties", {}).get(key), str)
    }


def test_a_named_resource_stays_where_it_is(variants: dict[str, Stacks]) -> None:
    """Made anew under another id or in another stack, it would meet the old one."""
    moved = {
        (old, new, what)
        for old, new in permutations(variants, 2)
        for what, place in named(variants[old]).items()
        if named(variants[new]).get(what, place) != place
    }
    assert moved == set()


def test_two_deployments_share_no_name(variants: dict[str, Stacks], small: Stacks) -> None:
    """The second would update the first."""
    ours, others = named(variants["production"]), named(small)
    kept = {what for what in set(ours) & set(others) if not what[1].startswith(("$", "origin"))}
    assert kept == {("AWS::ApiGatewayV2::Stage", "relay")} & kept


def test_stacks_are_named_by_the_prefix(assemblies: Path, production: Stacks) -> None:
    def names(variant: str) -> set[str]:
        manifest = json.loads((assemblies / variant / "manifest.json").read_text())
        return {
            artifact["properties"]["stackName"]
            for artifact in manifest["artifacts"].values()
            if artifact["type"] == "aws:cloudformation:stack"
        }

    assert names("production") == {f"farthing-{stack}" for stack in ORDER}
    assert all(name.startswith("small-") for name in names("small"))
