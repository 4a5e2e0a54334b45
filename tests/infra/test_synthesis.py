"""Synthesis: the same twice, of nothing but what is in the repository, and small."""

import json
from pathlib import Path

import pytest

from infra.deployment import Deployment
from infra.layer_contents import LIBRARY, LOCK, fingerprint
from tests.infra.conftest import ROOT, Stacks, run_synthesis


def test_two_syntheses_give_the_same_templates(
    assemblies: Path, production: Stacks, tmp_path: Path
) -> None:
    done = run_synthesis(tmp_path, "production")
    assert done.returncode == 0, done.stderr
    for name in ("Storage", "Edge", "Relay", "Analytics", "Operations"):
        template = f"production/Farthing{name}.template.json"
        assert (assemblies / template).read_text() == (tmp_path / template).read_text()


def test_templates_know_neither_this_machine_nor_an_account(production: Stacks) -> None:
    text = json.dumps(production.templates)
    assert str(ROOT) not in text
    assert "123456789012" not in text


def test_everything_is_tagged_with_its_deployment(assemblies: Path) -> None:
    manifest = json.loads((assemblies / "small/manifest.json").read_text())
    stacks = [
        artifact["properties"]
        for artifact in manifest["artifacts"].values()
        if artifact["type"] == "aws:cloudformation:stack"
    ]
    assert stacks
    assert all(stack["tags"] == {"farthing:deployment": "small-"} for stack in stacks)


def test_every_stack_has_its_outputs(production: Stacks) -> None:
    assert {"RelayUrl", "IlpUrl", "WebUrl"} <= set(production.templates["edge"]["Outputs"])
    assert {"PublicKey", "IlpAddress"} <= set(production.templates["relay"]["Outputs"])


class TestLayer:
    def test_it_holds_what_the_library_needs_and_nothing_that_lambda_has(self) -> None:
        named = {line.split("==")[0] for line in LOCK.read_text().splitlines() if "==" in line} - {
            ""
        }
        assert {"coincurve", "orjson", "pynamodb", "toons"} <= named
        assert not named & {"boto3", "botocore", "s3transfer", "urllib3", "aiohttp"}

    def test_it_has_the_versions_that_everything_is_tested_with(self) -> None:
        tested = (ROOT / "requirements.lock").read_text().splitlines()
        pins = {line.split(" ")[0] for line in tested if "==" in line}
        ours = {line.split(" ")[0] for line in LOCK.read_text().splitlines() if "==" in line}
        assert ours <= pins

    def test_its_hash_is_that_of_what_goes_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = fingerprint("manylinux2014_aarch64")
        assert before == fingerprint("manylinux2014_aarch64")
        assert before != fingerprint("manylinux2014_x86_64")
        monkeypatch.setattr("infra.layer_contents.LIBRARY", LIBRARY / "store")
        assert before != fingerprint("manylinux2014_aarch64")


class TestContext:
    def deployment(self, **context: object) -> Deployment:
        return Deployment.from_context(context.get)

    def test_numbers_and_objects_may_come_as_text(self) -> None:
        made = self.deployment(memory="1024", edge="false", concurrency='{"ilp": 5}')
        assert (made.memory, made.edge, made.concurrency) == (1024, False, {"ilp": 5})

    def test_a_setting_of_the_relay_is_passed_on(self) -> None:
        made = self.deployment(price_kinds={"1": 5000}, peer_with_follows=True, name="Mine")
        assert made.environment["FARTHING_PRICE_KINDS"] == '{"1": 5000}'
        assert made.environment["FARTHING_PEER_WITH_FOLLOWS"] == "1"
        assert made.environment["FARTHING_NAME"] == "Mine"

    @pytest.mark.parametrize(
        "context",
        [
            {"price_per_byte": "-1"},
            {"price_per_byte": "much"},
            {"removal": "perhaps"},
            {"domain": "relay.example"},
            {"ilp_address": "nowhere"},
            {"domain": "a.example", "certificate_arn": "arn:aws:acm:eu-west-1:1:certificate/x"},
            {"domain": "a.example", "certificate_arn": "arn:aws:acm:us-east-1:1:certificate/x",
             "edge": "false"},
            {"log_days": 31},
            {"glue_workers": 1},
            {"export_hours": 0},
            {"export_hours": 36},
            {"concurrency": '{"ipl": 5}'},
            {"forward_max_ms": "30000"},
        ],
    )  # fmt: skip
    def test_an_invalid_option_stops_the_deployment(self, context: dict[str, object]) -> None:
        with pytest.raises(
            ValueError,
            match=r"PER_BYTE|removal|domain|ADDRESS|us-east-1|days|workers|hours|'ipl'|forward",
        ):
            self.deployment(**context)

    def test_a_misspelt_option_is_not_passed_over(self) -> None:
        context = {"price_per_bite": "5", "@aws-cdk/core:x": True, "cli-telemetry": False}
        with pytest.raises(ValueError, match="price_per_bite"):
            Deployment.from_context(context.get, context)
        del context["price_per_bite"]
        assert Deployment.from_context(context.get, context) == Deployment()

    def test_a_secret_is_never_taken_from_the_context(self) -> None:
        made = self.deployment(secret_key="a" * 64, settlement_token="b" * 43)
        assert "a" * 64 not in str(made)
        assert "b" * 43 not in str(made)
