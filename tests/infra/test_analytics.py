"""The scheduled jobs: that they run, know whom for, and can reach what they read and write."""

import json
import re
from typing import Any

import pytest

from infra.job_contents import files
from tests.infra.conftest import ROOT, Stacks

JOBS = ["routes", "trust", "report"]
_CRON = r"cron\((\d+) (\S+) \* \* \? \*\)"


def jobs(stacks: Stacks) -> dict[str, dict[str, Any]]:
    return {
        each["Name"].removeprefix("farthing-"): each for each in stacks.properties("AWS::Glue::Job")
    }


@pytest.mark.parametrize("name", JOBS)
def test_each_job_runs_alone_on_two_small_workers(production: Stacks, name: str) -> None:
    job = jobs(production)[name]
    assert (job["GlueVersion"], job["WorkerType"], job["NumberOfWorkers"]) == ("6.0", "G.1X", 2)
    assert job["ExecutionProperty"]["MaxConcurrentRuns"] == 1
    assert job["Timeout"] == 30


@pytest.mark.parametrize("name", JOBS)
def test_jobs_run_on_spare_capacity_without_metrics(production: Stacks, name: str) -> None:
    job = jobs(production)[name]
    assert job["ExecutionClass"] == "FLEX"
    assert not {each for each in job["DefaultArguments"] if each.endswith("metrics")}


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
        assert re.fullmatch(_CRON, trigger["Schedule"])


def test_workers_do_not_wait_for_an_export(production: Stacks) -> None:
    """Each table that a job reads is exported some time before, by nobody who is paid."""
    exported = {
        _spelt_out(each["Target"]["Input"])["S3Prefix"].removeprefix("exports/"): each
        for each in production.properties("AWS::Scheduler::Schedule")
    }
    begun = {
        name: re.fullmatch(_CRON, each["ScheduleExpression"]) for name, each in exported.items()
    }
    triggers = {
        json.dumps(each["Actions"][0]["JobName"]): re.fullmatch(_CRON, each["Schedule"])
        for each in production.properties("AWS::Glue::Trigger")
    }
    assert set(exported) == {"events", "ledger"}
    for start in begun.values():
        assert start is not None and (start[1], start[2]) == ("0", "3")
    for start in triggers.values():
        assert start is not None and int(start[2]) * 60 + int(start[1]) >= 3 * 60 + 45


def test_an_export_may_be_made_and_written(production: Stacks) -> None:
    roles = {
        each["Target"]["RoleArn"]["Fn::GetAtt"][0]
        for each in production.properties("AWS::Scheduler::Schedule")
    }
    for role in roles:
        (policy,) = [
            each["PolicyDocument"]
            for each in production.properties("AWS::IAM::Policy")
            if {"Ref": role} in each["Roles"]
        ]
        text = json.dumps(policy)
        assert "dynamodb:ExportTableToPointInTime" in text
        for action in ("AbortMultipartUpload", "PutObject", "PutObjectAcl"):  # as AWS asks for
            assert f'"s3:{action}"' in text
        assert "/exports/*" in text
        assert "/report/*" not in text


def _spelt_out(joined: Any) -> dict[str, str]:
    """JSON in a template, with a word for whatever only the deployment knows."""
    parts = [each if isinstance(each, str) else "known-later" for each in joined["Fn::Join"][1]]
    made: dict[str, str] = json.loads("".join(parts))
    return made


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
    (bucket,) = production.properties("AWS::S3::Bucket", "analytics")
    (rule,) = [
        rule for rule in bucket["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" in rule
    ]
    assert (rule["Prefix"], rule["ExpirationInDays"]) == ("exports/", 7)
    assert all(bucket["PublicAccessBlockConfiguration"].values())
    assert "aws:SecureTransport" in json.dumps(production.properties("AWS::S3::BucketPolicy"))


def test_it_can_be_left_out(small: Stacks) -> None:
    assert "analytics" not in small.templates
