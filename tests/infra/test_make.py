"""`make test`: checks and tests run side by side, and each of them can fail it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Stands for every program that the Makefile calls. The checks take longer than the first test.
_PROGRAM = """#!/bin/sh
case "$(basename "$0") $*" in
    "python -m pytest "*) echo first test; touch {begun}; echo last test; exit $TESTS ;;
    "mypy "*) while [ ! -e {begun} ]; do sleep 0.01; done; echo types; exit $TYPES ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the Makefile, in which everything is set up and all programs are replaced."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "uv", "ruff", "mypy", "cfn-lint"):
        program = programs / name
        program.write_text(_PROGRAM.format(begun=tmp_path / "begun"))
        program.chmod(0o755)
    for name in ("cdk.json", "requirements-dev.lock"):
        (tmp_path / name).touch()
    templates = tmp_path / ".cache/templates"
    templates.mkdir(parents=True)
    for stamp in (tmp_path / "ready", templates / "linted"):
        stamp.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("tests", "types", "passes"), [(0, 0, True), (1, 0, False), (0, 1, False), (1, 1, False)]
)
def test_tests_and_checks_both_have_to_pass(
    project: Path, tests: int, types: int, passes: bool
) -> None:
    done = subprocess.run(
        ["make", "test", "BIN=bin", "DEV_READY=ready"],
        cwd=project, capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], "TESTS": str(tests), "TYPES": str(types)},
    )  # fmt: skip

    assert (done.returncode == 0) is passes, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["first test", "last test"], done.stdout
    assert "types" in lines[2:], done.stdout
