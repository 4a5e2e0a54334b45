"""A summary of a synthesis: the number of resources, and the size of the packages."""

import json
from collections.abc import Iterator
from pathlib import Path

from infra.layer_contents import LARGEST, LIBRARY, size_of

FUNCTIONS = Path(__file__).parents[1] / "functions"


def lines(assembly: Path) -> Iterator[str]:
    for path in sorted(assembly.glob("*.template.json")):
        resources = json.loads(path.read_text())["Resources"].values()
        functions = sum(each["Type"] == "AWS::Lambda::Function" for each in resources)
        name = path.name.removesuffix(".template.json")
        yield f"{name:<20}{len(resources):>4} resources{functions:>4} functions"
    sizes = {folder.name: size_of(folder, "*.py") for folder in FUNCTIONS.iterdir()}
    largest = max(sizes, key=lambda name: sizes[name])
    yield (
        f"function packages   {sum(sizes.values()) / 1024:.1f} KB in all,"
        f" the largest {largest} with {sizes[largest] / 1024:.1f} KB"
    )
    own = size_of(LIBRARY, "*.py") / 1024
    yield f"layer               {own:.0f} KB of our own; {_layer(assembly)}"


def _layer(assembly: Path) -> str:
    built = [path.parents[1] for path in assembly.glob("asset.*/python/pynamodb")]
    if not built:
        return "its dependencies are added when it is deployed (make layer shows them)"
    size = size_of(max(built, key=lambda path: path.stat().st_mtime))
    return f"{size / 2**20:.1f} MB unzipped with its dependencies, of {LARGEST / 2**20:.0f} allowed"
