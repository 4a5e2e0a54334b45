"""Cold start: the time that importing a handler takes, agent and DynamoDB client included, against
importing boto3 and making a DynamoDB client alone."""

import os
import subprocess
import sys
from statistics import median

from tests.bench.result import Row, at_most
from tests.e2e.relay_process import ROOT

RATIO = 1.3
_YARDSTICK = "import boto3; boto3.client('dynamodb')"
_TIMED = """
import time
started = time.perf_counter()
{work}
print(time.perf_counter() - started)
"""


def run(quick: bool) -> list[Row]:
    turns = 3 if quick else 9
    handlers = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))
    works = {"": _YARDSTICK} | {name: f"import functions.{name}.handler" for name in handlers}
    for work in works.values():
        _seconds(work)  # compiled, as in a layer
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(turns):
        for name, work in works.items():
            times[name].append(_seconds(work) * 1000)
    medians = {name: median(each) for name, each in times.items()}
    yardstick = medians.pop("")
    slowest = max(medians, key=lambda name: medians[name])
    fastest = min(medians, key=lambda name: medians[name])
    note = ", ".join(f"{name} {medians[name] / yardstick:.2f}" for name in handlers)
    return [
        Row(f"imports: slowest handler, {slowest}", medians[slowest], "ms", yardstick,
            "ms boto3 client", at_most(RATIO), note),
        Row(f"imports: fastest handler, {fastest}", medians[fastest], "ms", yardstick,
            "ms boto3 client", at_most(RATIO)),
    ]  # fmt: skip


def _seconds(work: str) -> float:
    """In a fresh interpreter whose start is not counted."""
    result = subprocess.run(
        [sys.executable, "-c", _TIMED.format(work=work)],
        cwd=ROOT, env=_environment(), check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(result.stdout)


def _environment() -> dict[str, str]:
    """As Lambda sets it. Nothing is sent, so that no key has to be real."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return inherited | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "layers/farthing/python"), str(ROOT)]),
        "AWS_LAMBDA_FUNCTION_NAME": "bench",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "FARTHING_SECRET_KEY": "01" * 32,
        "FARTHING_CONNECTIONS_URL": "https://bench.example/live",
    }
