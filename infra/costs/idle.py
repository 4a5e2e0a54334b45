"""What a deployment uses without any clients: its resources and its scheduled calls.

The amounts are for a month of thirty days.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.costs.bill import Usage
from infra.costs.measured import MILLION, Measured, Place
from infra.costs.prices import FREE_DASHBOARD_METRICS, Unit

_DAYS = 30
_MINUTES = _DAYS * 24 * 60
_HOURS_A_DAY = 24
_BANDED = 3  # metrics of an alarm on an anomaly: the metric and the band's two edges
_GIGABYTE = 10**9
_DASHBOARD = "AWS::CloudWatch::Dashboard"
# Assumed: how long a job runs over little data, once its export exists. Glue charges by the second,
# for at least a minute.
JOB_SECONDS = 90
_DPUS = {"G.1X": 1, "G.2X": 2, "G.4X": 4, "G.8X": 8}
_RATE = re.compile(r"rate\((\d+) minutes?\)")
_CRON = re.compile(r"cron\(\d+ (\d+|0/\d+) \* \* \? \*\)")

Resource = Mapping[str, Any]


class NoTemplates(Exception):
    """There are no templates to read the deployment from."""


@dataclass(frozen=True)
class Templates:
    """The resources of each stack, by logical id. Two stacks may use the same id."""

    stacks: Sequence[Mapping[str, Resource]]

    @classmethod
    def read(cls, folder: Path) -> "Templates":
        paths = sorted(folder.glob("Farthing*.template.json"))
        if not paths:
            raise NoTemplates(f"{folder} has no templates: make synth writes them")
        return cls([json.loads(path.read_text())["Resources"] for path in paths])

    def of_type(self, kind: str) -> Iterator[Resource]:
        return (properties for _, properties in self.with_stack(kind))

    def with_stack(self, kind: str) -> Iterator[tuple[Mapping[str, Resource], Resource]]:
        for stack in self.stacks:
            for each in stack.values():
                if each["Type"] == kind:
                    yield stack, each.get("Properties", {})

    def number(self, kind: str) -> int:
        return sum(1 for _ in self.of_type(kind))

    def place(self, prefix: str) -> Place:
        functions = {
            each["FunctionName"].removeprefix(prefix): each.get("MemorySize", 128)
            for each in self.of_type("AWS::Lambda::Function")
            if "FunctionName" in each
        }
        return Place(functions, edge=self.number("AWS::CloudFront::Distribution") > 0)


def _called(stack: Mapping[str, Resource], properties: object, prefix: str) -> str:
    """The name of the function that a property refers to."""
    text = json.dumps(properties)
    (name,) = [
        each["Properties"]["FunctionName"].removeprefix(prefix)
        for id, each in stack.items()
        if each["Type"] == "AWS::Lambda::Function" and f'"{id}"' in text
    ]
    return str(name)


@dataclass(frozen=True)
class Line:
    """One line of the bill: a name, and what it uses."""

    name: str
    usage: Usage


def idle(
    templates: Templates, prefix: str, by_clock: Mapping[str, Measured], gigabytes: int = 0
) -> list[Line]:
    """`by_clock` has what a million calls of each scheduled function use."""
    lines = [
        Line("alarms", Counter({Unit.ALARMS: sum(map(_alarm_metrics, _alarms(templates)))})),
        Line("dashboards", Counter(map(_dashboard, templates.of_type(_DASHBOARD)))),
        _number(templates, "secrets", "AWS::SecretsManager::Secret", Unit.SECRETS),
        _number(templates, "encryption keys", "AWS::KMS::Key", Unit.KEYS),
        *_calls(templates, prefix, by_clock),
        *_jobs(templates),
        *_exports(templates, gigabytes),
        _storage(templates, gigabytes),
    ]
    return [line for line in lines if +line.usage]


def _number(templates: Templates, name: str, kind: str, unit: Unit) -> Line:
    return Line(name, Counter({unit: templates.number(kind)}))


def _dashboard(board: Resource) -> Unit:
    """The unit of a dashboard, which has one of two prices by its number of metrics."""
    parts = board["DashboardBody"]["Fn::Join"][1]
    body = json.loads("".join(part if isinstance(part, str) else "known-later" for part in parts))
    metrics = sum(len(widget["properties"].get("metrics", ())) for widget in body["widgets"])
    return Unit.LARGE_DASHBOARDS if metrics > FREE_DASHBOARD_METRICS else Unit.DASHBOARDS


def _alarms(templates: Templates) -> list[Resource]:
    return list(templates.of_type("AWS::CloudWatch::Alarm"))


def _alarm_metrics(alarm: Resource) -> int:
    if "ThresholdMetricId" in alarm:
        return _BANDED
    return sum("MetricStat" in each for each in alarm.get("Metrics", ())) or 1


def _calls(templates: Templates, prefix: str, by_clock: Mapping[str, Measured]) -> Iterator[Line]:
    for stack, rule in templates.with_stack("AWS::Events::Rule"):
        if "ScheduleExpression" not in rule:
            continue  # the rule waits for an event, which costs nothing
        name = _called(stack, rule["Targets"], prefix)
        every = _RATE.fullmatch(rule["ScheduleExpression"])
        assert every is not None, rule["ScheduleExpression"]
        calls = _MINUTES // int(every[1])
        measured = by_clock[name]
        usage = Counter(
            {unit: -(-each * calls // MILLION) for unit, each in measured.usage.items()}
        )
        usage[Unit.METRICS] += len(measured.metrics)
        yield Line(f"{name}, {calls:,} calls", usage)


def _runs(schedule: str) -> int:
    """Runs per month of a schedule, which is daily or every so many hours."""
    found = _CRON.fullmatch(schedule)
    assert found is not None, schedule
    _, every, hours = found[1].partition("/")
    return _DAYS * (_HOURS_A_DAY // int(hours) if every else 1)


def _jobs(templates: Templates) -> Iterator[Line]:
    for stack, trigger in templates.with_stack("AWS::Glue::Trigger"):
        (action,) = trigger["Actions"]
        job = stack[action["JobName"]["Ref"]]["Properties"]
        unit = Unit.SPARE_JOB_SECONDS if job.get("ExecutionClass") == "FLEX" else Unit.JOB_SECONDS
        runs = _runs(trigger["Schedule"])
        seconds = runs * JOB_SECONDS * job["NumberOfWorkers"] * _DPUS[job["WorkerType"]]
        yield Line(f"Glue job {trigger['Name']}, {runs} runs", Counter({unit: seconds}))


def _exports(templates: Templates, gigabytes: int) -> Iterator[Line]:
    for schedule in templates.of_type("AWS::Scheduler::Schedule"):
        runs = _runs(schedule["ScheduleExpression"])
        usage = Counter({
            Unit.SCHEDULER_CALLS: runs, Unit.EXPORTED_BYTES: runs * gigabytes * _GIGABYTE
        })  # fmt: skip
        yield Line(f"{schedule['Name']}, {runs} runs", usage)


def _storage(templates: Templates, gigabytes: int) -> Line:
    recoverable = any(
        each.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled")
        for each in templates.of_type("AWS::DynamoDB::Table")
    )
    stored = gigabytes * _GIGABYTE
    return Line(
        f"{gigabytes} GB stored, restorable",
        Counter({Unit.STORED_BYTES: stored, Unit.RECOVERABLE_BYTES: stored * recoverable}),
    )
