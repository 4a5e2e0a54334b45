"""Data folders filled and read as an operator would: `farthing import`, `farthing export`, and the
other commands that work on them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.relay_process import ROOT, environment

_SECONDS = 120


def farthing(data: Path, *arguments: str, **settings: object) -> "subprocess.CompletedProcess[str]":
    """Run a command on a data folder, and wait for its end."""
    return subprocess.run(
        [sys.executable, "-m", "infra.local", *arguments],
        cwd=ROOT,
        env=environment(data, settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def import_events(data: Path, events: list[dict[str, Any]]) -> None:
    data.mkdir(parents=True, exist_ok=True)
    file = data.parent / f"{data.name}.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    done = farthing(data, "import", str(file), "--quiet")
    assert f"{len(events)} stored" in done.stdout, done.stderr


def exported_ids(data: Path, filter: dict[str, Any]) -> set[str]:
    done = farthing(data, "export", "--quiet", "--filter", json.dumps(filter))
    assert done.returncode == 0, done.stderr
    return {json.loads(line)["id"] for line in done.stdout.splitlines()}
