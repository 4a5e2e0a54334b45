"""The scheduled jobs: that they run, know whom for, and can reach what they read and write."""

import json
import re
from typing import Any

import pytest

from infra.job_contents import files
from tests.infra.conftest import ROOT, Stacks

JOBS = ["routes", "trust", "report"]


def jobs(stacks: Stacks) -> dict[str, dict[str, Any]]:
    return {
        each["Name"].removeprefix("farthing-"): each for each in stacks.properties("AWS::Glue::Job")
    }


@pytest.mark.parametrize("name", JOBS)
def test_where_and_how_large(production: Stacks, name: str) -> None:
    job = jobs(production)[name]
    assert (job["GlueVersion"], job["WorkerType"], job["NumberOfWorkers"]) == ("6.0", "G.1X", 2)
    assert job["ExecutionProperty"]["MaxConcurrentRuns"] == 1
    assert job["Timeout"] == 30


@pytest.mark.parametrize("name", JOBS)
def test_each_is_started_by_the_clock(production: Stacks, name: str) -> None:
    triggers = {
        json.dumps(each["Actions"][0]["JobName"]): each
        for each in production.properties("AWS::Glue::Trigger")
    }
    assert len(triggers) == len(JOBS)
    for trigger in triggers.values():
        assert trigger["Type"] == "SCHEDULED"
        assert trigger["StartOnCreation"] is True
        assert re.fullmatch(r"cron\(\d+ \S+ \* \* \? \*\)", trigger["Schedule"])


@pytest.mark.parametrize("name", JOBS)
def test_each_is_given_what_its_script_needs(production: Stacks, name: str) -> None:
    """The scripts name their arguments in one list."""
    job = jobs(production)[name]
    given = {argument.removeprefix("--") for argument in job["DefaultArguments"]}
    assert {"EVENTS_TABLE_ARN", "EXPORT_TO"} <= given
    if name == "report":
        assert {"NAME", "OUTPUT", "LEDGER_TABLE_ARN"} <= given
    else:
        assert {"OWNER", "TABLE_PREFIX"} <= given
        assert "PublicKey" in json.dumps(job["DefaultArguments"]["--OWNER"])


def test_what_they_import_is_in_the_zip() -> None:
    places = {str(place) for _, place in files()}
    assert {"glue_jobs/rules.py", "farthing/store/dynamodb.py", "pynamodb/__init__.py"} <= places
    assert {f"glue_jobs/{path.name}" for path in (ROOT / "glue_jobs").glob("*.css")} <= places


def test_exports_go_after_a_week_and_are_nobody_elses(production: Stacks) -> None:
    (bucket,) = production.properties("AWS::S3::Bucket")
    (rule,) = [
        rule for rule in bucket["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" in rule
    ]
    assert (rule["Prefix"], rule["ExpirationInDays"]) == ("exports/", 7)
    assert all(bucket["PublicAccessBlockConfiguration"].values())
    assert "aws:SecureTransport" in json.dumps(production.properties("AWS::S3::BucketPolicy"))


def test_it_can_be_left_out(small: Stacks) -> None:
    assert "analytics" not in small.templates
