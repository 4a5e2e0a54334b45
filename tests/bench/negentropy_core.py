"""Negentropy: set-up plus first answer against sorting the same set in plain Python."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.result import Row, at_most

RATIO = 2
PEAK_MB = 512
_SCRIPT = Path(__file__).with_name("bench_negentropy_core.py")


def run(quick: bool) -> list[Row]:
    sizes = [10_000] if quick else [10_000, 100_000, 1_000_000]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        command = [sys.executable, _SCRIPT, *sizes, "--json", found]
        subprocess.run([str(part) for part in command], check=True, capture_output=True)
        results = json.loads(found.read_text())
    return [row for result in results for row in _rows(result, last=result is results[-1])]


def _rows(result: dict[str, float], *, last: bool) -> list[Row]:
    """The targets are those of the largest set."""
    size = f"{int(result['items']):,}"
    measured = result["ratio"] * result["plain_ms"]
    note = (
        f"whole sync of {size} at 0.1 % difference: {result['sync_ms']:.0f} ms,"
        f" {result['rounds']} rounds, {result['bytes']:,} bytes"
    )
    return [
        Row(f"negentropy: {size}, seal and answer", measured, "ms", result["plain_ms"],
            "ms plain Python", at_most(RATIO) if last else None, note),
        Row(f"negentropy: {size}, peak memory", result["peak_mb"], "MB",
            target=at_most(PEAK_MB) if last else None),
    ]  # fmt: skip
