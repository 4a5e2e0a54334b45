"""Cold start: the time that importing a handler takes, agent and DynamoDB client included, against
importing boto3 and making a DynamoDB client alone.

The least of many runs counts: other work on the machine only ever makes a run slower. CPU time is
held to the target, because waiting for a core is not the handler's doing.
"""

import os
import subprocess
import sys

from tests.bench.result import Row, Target, at_most
from tests.e2e.relay_process import ROOT

RATIO = 1.3
_YARDSTICK = "import boto3; boto3.client('dynamodb')"
_TIMED = """
import time
wall, cpu = time.perf_counter(), time.process_time()
{work}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""

Pair = tuple[float, float]  # milliseconds: of a handler, and of the yardstick beside it


def run(quick: bool) -> list[Row]:
    turns = 5 if quick else 20
    names = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))
    wall: dict[str, list[Pair]] = {name: [] for name in names}
    cpu: dict[str, list[Pair]] = {name: [] for name in names}
    for name in names:
        _milliseconds(_import(name))  # compiled, as in a layer
    for _ in range(turns):
        for name in names:
            # Side by side: a machine that gets busier meanwhile slows both.
            handler, yardstick = _milliseconds(_import(name)), _milliseconds(_YARDSTICK)
            wall[name].append((handler[0], yardstick[0]))
            cpu[name].append((handler[1], yardstick[1]))
    return [_slowest("time", wall, None), _slowest("CPU", cpu, at_most(RATIO))]


def _import(name: str) -> str:
    return f"import functions.{name}.handler"


def _slowest(what: str, pairs: dict[str, list[Pair]], target: Target | None) -> Row:
    # The yardstick is the same beside every handler, so all its runs count.
    other = min(yardstick for each in pairs.values() for _, yardstick in each)
    least = {name: min(mine for mine, _ in each) for name, each in pairs.items()}
    ratios = {name: mine / other for name, mine in least.items()}
    slowest = max(ratios, key=lambda name: ratios[name])
    note = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return Row(f"imports: {what}, slowest: {slowest}", least[slowest], "ms", other,
               "ms boto3 client", target, note)  # fmt: skip


def _milliseconds(work: str) -> Pair:
    """Wall and CPU time in a fresh interpreter, whose own start is not counted."""
    result = subprocess.run(
        [sys.executable, "-c", _TIMED.format(work=work)],
        cwd=ROOT, env=lambda_environment(), check=True, capture_output=True, text=True,
    )  # fmt: skip
    wall, cpu = result.stdout.split()
    return float(wall) * 1000, float(cpu) * 1000


def lambda_environment() -> dict[str, str]:
    """As Lambda sets it. Nothing is sent, so that no key has to be real."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)  # a layer's modules are compiled once
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
