"""Arrows point one way: functions, handlers, verbs, store and protocols. No import goes back up."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.bench.imports import lambda_environment

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "layers/farthing/python"

# Each part of the library may import the parts that stand below it, and none above. Parts in one
# row do not know each other, but for what EXCEPT allows.
HOUSE = (
    {"handlers"},
    {"surface"},
    {"aws"},
    {"agent"},
    {"connector"},
    {"relay"},
    {"context"},
    {"ports", "store"},
    {"settings"},
    {"btp_nips", "aether"},
    {"ilp", "nostr"},
)
EXCEPT = {("ilp", "nostr")}
FORBIDDEN = {
    part: {
        other
        for lower, others in enumerate(HOUSE)
        for other in others
        if other != part and lower <= upper and (part, other) not in EXCEPT
    }
    for upper, parts in enumerate(HOUSE)
    for part in parts
}
# The store is told its limits, and knows no settings.
FORBIDDEN["store"] |= {"settings"}
AWS = {"aws_lambda_powertools", "boto3", "botocore", "moto", "pynamodb"}
KNOWS_AWS = ("farthing.aws.", "farthing.store.dynamodb")
OUTSIDE = {"aiohttp", "aws_cdk", "functions", "glue_jobs", "infra", "pyspark", "tests"}


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(LIBRARY.rglob("*.py"))
    }


def imports(path: Path, *, when_run: bool = False) -> set[str]:
    """The modules that a file names; `when_run` leaves out those that only type checkers see."""
    return set(_imports(ast.parse(path.read_text()), when_run))


def _imports(node: ast.AST, when_run: bool) -> Iterator[str]:
    if when_run and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        yield node.module or ""
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, when_run)


def part(module: str) -> str:
    """`farthing.store.table` belongs to `store`."""
    return module.split(".")[1] if module.startswith("farthing.") else ""


def test_there_is_something_to_check() -> None:
    found = modules()

    assert "farthing.store.table" in found
    assert "farthing.store.table" in imports(found["farthing.store.events"])
    assert {part(module) for module in found} >= {part for row in HOUSE for part in row} - {
        "btp_nips",
        "aether",
    }


@pytest.mark.parametrize("module", modules())
def test_no_import_goes_back_up(module: str) -> None:
    named = imports(modules()[module])

    up = {each for each in named if part(each) in FORBIDDEN.get(part(module), set())}

    assert not up


@pytest.mark.parametrize("module", modules())
def test_only_the_edges_know_of_aws_and_nothing_of_what_is_outside(module: str) -> None:
    roots = {each.split(".")[0] for each in imports(modules()[module])}

    assert not roots & OUTSIDE
    if not module.startswith(KNOWS_AWS):
        assert not roots & AWS


def test_no_module_imports_itself_by_a_detour() -> None:
    found = modules()
    graph = {
        module: {each for each in imports(path, when_run=True) if each in found and each != module}
        for module, path in found.items()
    }

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports in a circle: {error.args[1]}")


def test_every_module_is_of_use_to_a_function_a_job_or_one_machine() -> None:
    """What only tests use does not belong into the layer."""
    found = modules()
    outside = [path for folder in ("functions", "glue_jobs", "infra")
               for path in (ROOT / folder).rglob("*.py")]  # fmt: skip
    used, open_ends = set[str](), outside
    while open_ends:
        named = imports(open_ends.pop())
        new = {module for each in named for module in _with_packages(each)} & found.keys() - used
        used |= new
        open_ends += [found[module] for module in new]

    assert found.keys() - used == {"farthing"}


def _with_packages(module: str) -> Iterator[str]:
    """`farthing.nostr.negentropy` stands for itself and for `farthing.nostr`."""
    names = module.split(".")
    yield from (".".join(names[:length]) for length in range(2, len(names) + 1))


# These stand apart. The brake must work where the library does not, and talks to Lambda alone. The
# check of a request's origin delays every connection, and compares two strings.
WITHOUT_LIBRARY = {"brake", "origin"}
HANDLERS = sorted((ROOT / "functions").glob("*/handler.py"))


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda path: path.parent.name)
def test_handlers_are_thin(handler: Path) -> None:
    named = imports(handler)

    if handler.parent.name not in WITHOUT_LIBRARY:
        assert any(part(each) in ("handlers", "aws") for each in named)
        assert not {each.split(".")[0] for each in named} & (AWS | OUTSIDE)
    assert len(handler.read_text().splitlines()) <= 60


def test_the_verbs_load_without_aws() -> None:
    """A cold start pays for what is imported."""
    script = (
        "import sys; import farthing.relay.verbs; "
        f"print(sorted({AWS!r} & {{name.split('.')[0] for name in sys.modules}}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=LIBRARY, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("function", "spared"),
    [
        ("ilp", "farthing.connector.subscriptions"),
        ("ilp", "farthing.ilp.stream_receiver"),
        ("event", "farthing.store.paid_subscriptions"),
        ("req", "farthing.store.paid_subscriptions"),
    ],
)
def test_a_function_does_not_load_what_few_calls_need(function: str, spared: str) -> None:
    script = f"import sys, functions.{function}.handler; print({spared!r} in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, env=lambda_environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == "False"
