"""Someone is told, and the money has a bound."""

import json
from importlib import import_module
from typing import Any

import pytest
from botocore.exceptions import ClientError

from farthing.ports.meter import Metric, metric_namespace
from farthing.store.table import Table
from farthing.surface import QUEUES, RUNS_WHEN_BRAKED, STREAMS
from infra.deployment import Deployment
from infra.permissions import TABLES
from tests.infra.conftest import ROOT, Stacks
from tests.infra.test_relay import functions


def alarms(stacks: Stacks) -> list[dict[str, Any]]:
    return stacks.properties("AWS::CloudWatch::Alarm")


def test_every_alarm_tells_someone(production: Stacks) -> None:
    (topic,) = [id for id in production.of_type("AWS::SNS::Topic") if id.startswith("Alarms")]
    for alarm in alarms(production):
        assert {"Ref": topic} in alarm["AlarmActions"]


def test_every_topic_takes_what_is_published_to_it(production: Stacks) -> None:
    """A topic's policy replaces the one by which an account's own alarms may publish."""
    publishers: dict[str, set[str]] = {}
    for policy in production.properties("AWS::SNS::TopicPolicy"):
        for topic in policy["Topics"]:
            publishers[topic["Ref"]] = {
                statement["Principal"]["Service"]
                for statement in policy["PolicyDocument"]["Statement"]
                if statement["Effect"] == "Allow"
            }
    told = {
        *(("cloudwatch.amazonaws.com", action["Ref"])
          for alarm in alarms(production) for action in alarm["AlarmActions"]),
        *(("budgets.amazonaws.com", each["Subscribers"][0]["Address"]["Ref"])
          for budget in production.properties("AWS::Budgets::Budget")
          for each in budget["NotificationsWithSubscribers"]),
        *(("events.amazonaws.com", rule["Targets"][0]["Arn"]["Ref"])
          for rule in production.properties("AWS::Events::Rule") if "EventPattern" in rule),
    }  # fmt: skip
    assert len(told) == 5
    for service, topic in told:
        assert service in publishers[topic]


def test_each_stream_queue_table_and_error_has_an_alarm(production: Stacks) -> None:
    watched = json.dumps(alarms(production))
    assert watched.count('"ApproximateNumberOfMessagesVisible"') == len(STREAMS) + len(QUEUES)
    assert watched.count('"IteratorAge"') == len(STREAMS)
    assert watched.count('"ApproximateAgeOfOldestMessage"') == len(QUEUES)
    assert watched.count('"WriteThrottleEvents"') == 6
    for metric in ("Errors", "Throttles", Metric.REVENUE, Metric.HOLDS_RELEASED,
                   Metric.INTERNAL_ERRORS):  # fmt: skip
        assert f'"{metric}"' in watched


def test_no_alarm_on_messages_that_are_delayed_on_purpose(production: Stacks) -> None:
    """SQS counts the age of a message from its sending."""
    thresholds = {
        str(alarm["Dimensions"][0]["Value"]).rpartition("-")[2]: alarm["Threshold"]
        for alarm in alarms(production)
        if alarm.get("MetricName") == "ApproximateAgeOfOldestMessage"
    }
    assert thresholds == {"recipients": 300, "deliveries": 1200, "broadcasts": 1200}


def test_a_job_that_fails_is_noticed(production: Stacks, small: Stacks) -> None:
    (rule,) = [
        each for each in production.properties("AWS::Events::Rule") if "EventPattern" in each
    ]
    assert rule["EventPattern"]["source"] == ["aws.glue"]
    detail = rule["EventPattern"]["detail"]
    assert set(detail["state"]) == {"FAILED", "TIMEOUT"}
    (wanted,) = detail["jobName"]
    for job in production.properties("AWS::Glue::Job"):
        assert job["Name"].startswith(wanted["prefix"])
    assert not [each for each in small.properties("AWS::Events::Rule") if "EventPattern" in each]


def test_a_sweeper_that_does_not_run_is_noticed(production: Stacks) -> None:
    (alarm,) = [each for each in alarms(production) if each.get("MetricName") == "Invocations"]
    assert alarm["TreatMissingData"] == "breaching"


def test_there_are_no_more_alarms_than_planned(production: Stacks) -> None:
    """Two for each stream and queue, one for each table, and ten."""
    assert len(alarms(production)) <= 2 * len(STREAMS) + 2 * len(QUEUES) + len(Table) + 10


def test_metrics_are_of_this_deployment(production: Stacks, small: Stacks) -> None:
    for stacks, prefix in ((production, "farthing-"), (small, "small-")):
        text = json.dumps(alarms(stacks))
        assert f'"Namespace": "{metric_namespace(prefix)}"' in text
        assert '"Namespace": "Farthing"' not in text
    assert metric_namespace("farthing-") != metric_namespace("small-")


def test_each_dashboard_is_small_enough_to_be_free(production: Stacks) -> None:
    """Three are, of fifty metrics at most."""
    boards = production.properties("AWS::CloudWatch::Dashboard")
    assert 1 <= len(boards) <= 3
    for board in boards:
        parts = board["DashboardBody"]["Fn::Join"][1]
        body = json.loads("".join(part if isinstance(part, str) else "x" for part in parts))
        assert sum(len(widget["properties"]["metrics"]) for widget in body["widgets"]) <= 50


def test_too_many_messages_pull_the_brake_within_the_hour(production: Stacks) -> None:
    """A bill knows of them hours later."""
    (spent,) = [id for id in production.of_type("AWS::SNS::Topic") if id.startswith("BrakeSpent")]
    pulling = {
        alarm["MetricName"]: alarm
        for alarm in alarms(production)
        if {"Ref": spent} in alarm["AlarmActions"]
    }
    assert set(pulling) == {"MessageCount", "Count"}
    for alarm in pulling.values():
        assert alarm["Namespace"] == "AWS/ApiGateway"
        assert alarm["Period"] * alarm["EvaluationPeriods"] <= 3600
        assert alarm["Threshold"] == Deployment().hourly_messages
    named = {each["Name"] for each in pulling["MessageCount"]["Dimensions"]}
    assert named == {"ApiId", "Stage"}


class TestBudget:
    def test_its_end_stops_the_relay_and_is_foretold(self, production: Stacks) -> None:
        (budget,) = production.properties("AWS::Budgets::Budget")
        assert budget["Budget"]["BudgetLimit"] == {"Amount": 50, "Unit": "USD"}
        told = {
            (each["Notification"]["NotificationType"], each["Notification"]["Threshold"]):
            each["Subscribers"][0]["Address"]["Ref"]
            for each in budget["NotificationsWithSubscribers"]
        }  # fmt: skip
        assert set(told) == {("FORECASTED", 100), ("ACTUAL", 80), ("ACTUAL", 100)}
        (brake,) = [
            each
            for each in production.properties("AWS::SNS::Subscription")
            if each["Protocol"] == "lambda"
        ]
        assert brake["TopicArn"] == {"Ref": told["ACTUAL", 100]}

    def test_the_brake_stops_functions_that_spend_money(self, production: Stacks) -> None:
        variables = functions(production)["brake"][1]["Environment"]["Variables"]
        braked = json.loads(variables["FARTHING_BRAKED"])
        assert set(braked) == {f"farthing-{name}" for name in set(TABLES) - RUNS_WHEN_BRAKED}
        assert braked["farthing-ilp"] == 50
        assert braked["farthing-req"] is None

    def test_none_if_there_is_none(self, small: Stacks) -> None:
        assert small.of_type("AWS::Budgets::Budget") == {}


class FakeLambda:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int | None]] = []
        self.resisting = ""

    def put_function_concurrency(
        self, *, FunctionName: str, ReservedConcurrentExecutions: int
    ) -> None:
        if FunctionName == self.resisting:
            raise ClientError({"Error": {"Code": "InvalidParameterValue"}}, "Put")
        self.calls.append((FunctionName, ReservedConcurrentExecutions))

    def delete_function_concurrency(self, *, FunctionName: str) -> None:
        self.calls.append((FunctionName, None))


class TestBrake:
    @pytest.fixture
    def client(self, monkeypatch: pytest.MonkeyPatch) -> FakeLambda:
        client = FakeLambda()
        brake = import_module("functions.brake.handler")
        monkeypatch.setenv("FARTHING_BRAKED", json.dumps({"ilp": 50, "req": None}))
        session = type("Session", (), {"create_client": lambda *_: client})
        monkeypatch.setattr(brake, "get_session", session)
        return client

    def test_a_spent_budget_stops_every_braked_function(self, client: FakeLambda) -> None:
        sample = json.loads((ROOT / "events/brake.json").read_text())
        brake = import_module("functions.brake.handler")
        assert brake.handler(sample, None) == {"stopped": ["ilp", "req"]}
        assert client.calls == [("ilp", 0), ("req", 0)]

    def test_a_function_that_resists_does_not_spare_the_others(self, client: FakeLambda) -> None:
        client.resisting = "ilp"
        brake = import_module("functions.brake.handler")
        with pytest.raises(RuntimeError, match=r"failed at .*ilp"):
            brake.handler({"release": True}, None)
        assert client.calls == [("req", None)]

    def test_it_gives_back_what_was(self, client: FakeLambda) -> None:
        brake = import_module("functions.brake.handler")
        assert brake.handler({"release": True}, None) == {"released": ["ilp", "req"]}
        assert client.calls == [("ilp", 50), ("req", None)]
