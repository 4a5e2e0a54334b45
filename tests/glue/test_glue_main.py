"""`main()` alone knows of Glue and AWS, and passes on what it is told."""

import ast
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from glue_jobs import rebuild_routes
from glue_jobs.events_source import Format
from glue_jobs.generations import Pointer
from glue_jobs.rules import Report

JOBS = sorted((Path(__file__).parents[2] / "glue_jobs").glob("*.py"))
CLOUD = {"awsglue", "boto3", "botocore"}


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_nothing_of_the_cloud_is_imported_with_a_module(job: Path) -> None:
    for node in ast.parse(job.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & CLOUD


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much of `awsglue` as the jobs use."""

    def resolved(argv: list[str], names: list[str]) -> dict[str, str]:
        return {name: argv[argv.index(f"--{name}") + 1] for name in names}

    parts = {
        "awsglue": {},
        "awsglue.context": {"GlueContext": lambda _: SimpleNamespace(spark_session="session")},
        "awsglue.job": {
            "Job": lambda _: SimpleNamespace(init=lambda *_: None, commit=lambda: None)
        },
        "awsglue.utils": {"getResolvedOptions": resolved},
    }
    for name, members in parts.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("pyspark.context.SparkContext.getOrCreate", lambda: None)


class Table:
    live_pointer = Pointer("before", 3, 0)

    def __init__(self, name: str) -> None:
        self.name = name

    def live(self) -> Pointer:
        return self.live_pointer

    def write(self, routes: Any, expires: int) -> None:
        assert routes == "routes"

    def move(self, pointer: Pointer, previous: Pointer) -> None:
        assert previous == Pointer("before", 3, 0)
        type(self).live_pointer = pointer


@pytest.mark.usefixtures("glue")
def test_a_rebuild_on_glue(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def rebuild(*arguments: Any) -> tuple[Any, Report]:
        told.extend(arguments)
        return "routes", Report(routes=2)

    monkeypatch.setattr(rebuild_routes, "rebuild", rebuild)
    monkeypatch.setattr(rebuild_routes, "DynamoRoutes", Table)
    arguments = {"JOB_NAME": "j", "SOURCE": "s3://a,s3://b", "SOURCE_FORMAT": "dynamodb",
                 "OWNER": "me", "ROUTES_TABLE": "routes", "HOP_LIMIT": "3"}  # fmt: skip
    argv = [part for name, value in arguments.items() for part in (f"--{name}", value)]
    monkeypatch.setattr(sys, "argv", ["job", *argv])

    rebuild_routes.main()

    session, paths, sources, options = told
    assert (session, paths, sources) == ("session", ["s3://a", "s3://b"], ["me"])
    assert (options.source_format, options.hop_limit) == (Format.DYNAMODB, 3)
    assert Table.live_pointer == Pointer(options.generation, 2, options.now)
