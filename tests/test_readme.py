"""The README says what is so: its tables of settings and options are their own."""

import re
from pathlib import Path

from farthing.settings import documentation
from farthing.surface import documentation as routes
from infra.deployment import documentation as deployment_documentation

README = (Path(__file__).parent.parent / "README.md").read_text()


def table(kind: str, documented: list[tuple[str, str, str]]) -> str:
    rows = [
        f"| `{name}` | {f'`{default}`' if default else ''} | {about} |"
        for name, default, about in documented
    ]
    return "\n".join([f"| {kind} | default | what it is |", "|---|---|---|", *rows])


def between(mark: str) -> str:
    return README.partition(f"<!-- {mark} -->")[2].partition(f"<!-- /{mark} -->")[0].strip()


def test_every_setting_is_documented_as_it_is() -> None:
    assert between("settings") == table("variable", documentation())


def test_so_is_every_option_of_a_deployment() -> None:
    assert between("options") == table("option", deployment_documentation())


def test_every_route_is_documented_as_it_is() -> None:
    rows = [f"| `{method} {path}` | {about} |" for method, path, about in routes()]
    assert between("routes") == "\n".join(["| route | what it is |", "|---|---|", *rows])


def test_the_cdk_that_is_named_is_one_that_takes_the_library() -> None:
    """3.x refuses it, and what comes without a version is 3.x."""
    named = re.findall(r"aws-cdk(@[\d.]+)?(?= )", README)
    assert named
    assert set(named) == {"@2.1147.0"}
