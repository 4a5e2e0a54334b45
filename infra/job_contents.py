"""The zip that every Glue job imports: the jobs' own modules, the library and PynamoDB."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SUFFIXES = (".py", ".css", ".typed")


def packages() -> list[Path]:
    pynamodb = find_spec("pynamodb")
    assert pynamodb is not None
    assert pynamodb.origin is not None
    return [
        ROOT / "glue_jobs",
        ROOT / "layers/farthing/python/farthing",
        Path(pynamodb.origin).parent,
    ]


def files() -> list[tuple[Path, Path]]:
    """Each file and its place in the zip."""
    return [
        (path, path.relative_to(package.parent))
        for package in packages()
        for path in sorted(package.rglob("*"))
        if path.suffix in _SUFFIXES
    ]


def fingerprint() -> str:
    digest = hashlib.sha256()
    for path, place in files():
        digest.update(str(place).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
