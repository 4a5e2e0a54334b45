"""Someone is told, and the money has a bound."""

import json
from importlib import import_module
from typing import Any

import pytest

from farthing.ports.meter import Metric
from farthing.surface import RUNS_WHEN_BRAKED
from infra.permissions import TABLES
from tests.infra.conftest import Stacks
from tests.infra.test_relay import functions


def alarms(stacks: Stacks) -> list[dict[str, Any]]:
    return stacks.properties("AWS::CloudWatch::Alarm")


def test_every_alarm_tells_someone(production: Stacks) -> None:
    (topic,) = [id for id in production.of_type("AWS::SNS::Topic") if id.startswith("Alarms")]
    for alarm in alarms(production):
        assert alarm["AlarmActions"] == [{"Ref": topic}]


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
        *(("cloudwatch.amazonaws.com", alarm["AlarmActions"][0]["Ref"])
          for alarm in alarms(production)),
        *(("budgets.amazonaws.com", each["Subscribers"][0]["Address"]["Ref"])
          for budget in production.properties("AWS::Budgets::Budget")
          for each in budget["NotificationsWithSubscribers"]),
        *(("events.amazonaws.com", rule["Targets"][0]["Arn"]["Ref"])
          for rule in production.properties("AWS::Events::Rule") if "EventPattern" in rule),
    }  # fmt: skip
    assert len(told) == 4
    for service, topic in told:
        assert service in publishers[topic]


def test_what_is_watched(production: Stacks) -> None:
    watched = json.dumps(alarms(production))
    for metric in ("ApproximateNumberOfMessagesVisible", "IteratorAge"):
        assert watched.count(f'"{metric}"') == 3  # one for each stream
    assert watched.count('"WriteThrottleEvents"') == 6
    for metric in ("Errors", "Throttles", Metric.REVENUE, Metric.HOLDS_RELEASED,
                   Metric.INTERNAL_ERRORS):  # fmt: skip
        assert f'"{metric}"' in watched


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


def test_alarms_cost_little(production: Stacks) -> None:
    assert len(alarms(production)) <= 20


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

    def test_who_is_stopped(self, production: Stacks) -> None:
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

    def put_function_concurrency(
        self, *, FunctionName: str, ReservedConcurrentExecutions: int
    ) -> None:
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

    def test_it_stops_all(self, client: FakeLambda) -> None:
        brake = import_module("functions.brake.handler")
        assert brake.handler({"Records": [{"Sns": {}}]}, None) == {"stopped": ["ilp", "req"]}
        assert client.calls == [("ilp", 0), ("req", 0)]

    def test_it_gives_back_what_was(self, client: FakeLambda) -> None:
        brake = import_module("functions.brake.handler")
        assert brake.handler({"release": True}, None) == {"released": ["ilp", "req"]}
        assert client.calls == [("ilp", 50), ("req", None)]
