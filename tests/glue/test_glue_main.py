"""`main()` alone knows of Glue and AWS, and passes on what it is told."""

import ast
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from farthing.store.credits import CreditLimits
from farthing.store.memory import MemoryEngine
from farthing.store.routes import RoutingTable
from glue_jobs import glue, rebuild_routes, trust_scores
from glue_jobs.events_source import Format
from glue_jobs.glue import ExportFailed, export_table, newest_export
from glue_jobs.rules import Report
from infra.job_contents import files

ROOT = Path(__file__).parents[2]
JOBS = sorted((ROOT / "glue_jobs").glob("*.py"))
CLOUD = {"awsglue", "boto3", "botocore", "pynamodb"}


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_nothing_of_the_cloud_is_imported_with_a_module(job: Path) -> None:
    for node in ast.parse(job.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & CLOUD


# What Glue's own Python brings, as far as the jobs may use it.
ON_GLUE = {"boto3", "botocore", "dateutil", "jmespath", "py4j", "pyspark", "s3transfer", "six",
           "typing_extensions", "urllib3"}  # fmt: skip
IMPORT_ALL = """
import sys
from importlib import import_module
archive, *names = sys.argv[1:]
OURS = ("farthing", "glue_jobs", "pynamodb")

class OnlyWhatGlueHas:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        own = root in OURS or root in sys.stdlib_module_names or root.startswith("_")
        if not own and root not in ON_GLUE:
            raise ModuleNotFoundError(f"{name} is neither in the zip nor on Glue")

sys.meta_path.insert(0, OnlyWhatGlueHas())
for name in names:
    import_module(name)
for name, module in list(sys.modules.items()):
    if name.startswith(OURS) and getattr(module, "__file__", None):
        assert module.__file__.startswith(archive), f"{name} comes from {module.__file__}"
"""


def test_the_jobs_need_only_what_the_zip_brings(tmp_path: Path) -> None:
    """Imported from the zip itself, and from nowhere else: a module that is left out is missed."""
    archive = tmp_path / "library.zip"
    with zipfile.ZipFile(archive, "w") as library:
        for path, place in files():
            library.write(path, place)
    names = [f"glue_jobs.{path.stem}" for path in JOBS if path.stem != "__init__"]
    wanted = [*names, "farthing.store.dynamodb", "farthing.store.credits", "farthing.store.routes"]

    done = subprocess.run(
        [sys.executable, "-c", f"ON_GLUE = {ON_GLUE}\n{IMPORT_ALL}", str(archive), *wanted],
        cwd=tmp_path, env={"PYTHONPATH": str(archive)}, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr


@pytest.fixture
def on_glue(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr("pyspark.SparkContext.getOrCreate", lambda: None)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> MemoryEngine:
    """In place of DynamoDB."""
    memory = MemoryEngine()
    monkeypatch.setattr(glue.GlueRun, "engine_maker", lambda _: lambda: memory)
    return memory


def call(monkeypatch: pytest.MonkeyPatch, main: Any, **arguments: str) -> None:
    given = {"JOB_NAME": "j", "TABLE_PREFIX": "t-", "OWNER": "me", **arguments}
    argv = [part for name, value in given.items() for part in (f"--{name}", value)]
    monkeypatch.setattr(sys, "argv", ["job", *argv])
    main()


class Frame:
    """Two routes, or credit for two."""

    rows = tuple(
        {"prefix": f"g.agent.{name}", "owner": "o", "next_hop": "n", "fee": 0, "hops": 1,
         "path": ["n"]}
        for name in "ab"
    )  # fmt: skip

    def foreachPartition(self, work: Any) -> None:
        work(iter(self.rows))


@pytest.mark.usefixtures("on_glue")
def test_a_rebuild_on_glue(monkeypatch: pytest.MonkeyPatch, engine: MemoryEngine) -> None:
    told: list[Any] = []

    def rebuild(*arguments: Any) -> tuple[Any, Report]:
        told.extend(arguments)
        return Frame(), Report(routes=2)

    monkeypatch.setattr(rebuild_routes, "rebuild", rebuild)

    call(monkeypatch, rebuild_routes.main, SOURCE="s3://a,s3://b", SOURCE_FORMAT="jsonl",
         HOP_LIMIT="3", MAX_SHRINK_PERCENT="10")  # fmt: skip

    session, paths, sources, options = told
    assert (session, paths, sources) == ("session", ["s3://a", "s3://b"], ["me"])
    assert (options.source_format, options.hop_limit) == (Format.JSONL, 3)
    live = RoutingTable(engine).live()
    assert live is not None and (live.name, live.count) == (options.generation, 2)
    assert RoutingTable(engine).lookup("g.agent.a.x") is not None


@pytest.mark.usefixtures("on_glue")
def test_the_trust_job_writes_credit_limits(
    monkeypatch: pytest.MonkeyPatch, engine: MemoryEngine
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(trust_scores, "read_events", lambda *given: told.append(given))
    monkeypatch.setattr(trust_scores, "trust_scores", lambda *given: told.append(given))
    monkeypatch.setattr(trust_scores, "credit_of", lambda _: {"a": 5})

    call(monkeypatch, trust_scores.main, SOURCE="s3://a", BUDGET="100", CAP="10")

    assert told[0] == ("session", ["s3://a"], Format.DYNAMODB)
    assert told[1][1] == "me" and (told[1][3].budget, told[1][3].cap) == (100, 10)
    assert CreditLimits(engine).all() == {"a": 5}


class Exporting:
    """DynamoDB, which takes its time and may fail."""

    def __init__(self, *states: str) -> None:
        self.states, self.asked = list(states), {}

    def _describe(self) -> dict[str, Any]:
        arn = "arn:aws:dynamodb:r:1:table/events/export/017-abc"
        found = {"ExportArn": arn, "ExportStatus": self.states.pop(0), "FailureMessage": "no PITR"}
        return {"ExportDescription": found}

    def export_table_to_point_in_time(self, **asked: Any) -> dict[str, Any]:
        self.asked = asked
        return self._describe()

    def describe_export(self, ExportArn: str) -> dict[str, Any]:
        return self._describe()


def test_a_table_is_exported_and_waited_for() -> None:
    client, waits = Exporting("IN_PROGRESS", "IN_PROGRESS", "COMPLETED"), []

    path = export_table(client, "arn:events", "s3://bucket/a/b/", waits.append)

    assert path == "s3://bucket/a/b/AWSDynamoDB/017-abc/data/"
    assert (client.asked["S3Bucket"], client.asked["S3Prefix"]) == ("bucket", "a/b")
    assert len(waits) == 2


class Listing:
    """S3 with an object in each of its pages."""

    def __init__(self, **written: float) -> None:
        self.written, self.asked = written, {}

    def get_paginator(self, name: str) -> "Listing":
        assert name == "list_objects_v2"
        return self

    def paginate(self, **asked: Any) -> Any:
        self.asked = asked
        for name, when in self.written.items():
            key = f"exports/events/AWSDynamoDB/{name}"
            moment = datetime.fromtimestamp(when, UTC)
            yield {"Contents": [{"Key": f"{key}/data/x.json.gz", "LastModified": moment}]}
            if not name.startswith("running"):
                yield {
                    "Contents": [{"Key": f"{key}/manifest-summary.json", "LastModified": moment}]
                }
        yield {}


def test_the_last_complete_export_is_taken() -> None:
    s3 = Listing(old=100, new=300, running=400, newer_than_old=200)

    path = newest_export(s3, "s3://bucket/exports/events", since=250)

    assert path == "s3://bucket/exports/events/AWSDynamoDB/new/data/"
    assert s3.asked == {"Bucket": "bucket", "Prefix": "exports/events/AWSDynamoDB/"}


@pytest.mark.parametrize("s3", [Listing(), Listing(running=400), Listing(old=100)])
def test_no_export_is_better_than_an_old_one(s3: Listing) -> None:
    assert newest_export(s3, "s3://bucket/exports/events", since=250) is None


def test_an_export_that_fails_says_why() -> None:
    with pytest.raises(ExportFailed, match="no PITR"):
        export_table(Exporting("FAILED"), "arn:events", "s3://bucket", lambda _: None)
