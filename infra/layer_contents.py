"""The contents of the Lambda layer, installed by pip without Docker: the library and its
dependencies, except those that Lambda's runtime has already."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "layers/farthing/python/farthing"
LOCK = ROOT / "requirements-layer.lock"
# Bytes unzipped. Lambda's limit is 250 MB, but a larger layer makes cold starts slower.
LARGEST = 30 * 1024 * 1024

LAMBDA = "manylinux2014_aarch64"
LAMBDA_PYTHON = "3.13"
# The platform of this interpreter, for an emulator on the same machine.
THIS_MACHINE = "this-machine"
_LEFT_OUT = ("__pycache__", "*.pyc", "*.dist-info", "tests")


def build(target: Path, platform: str = LAMBDA) -> None:
    """Install the locked dependencies and the library into `target`/python."""
    python = target / "python"
    elsewhere = () if platform == THIS_MACHINE else (
        "--platform", platform, "--python-version", LAMBDA_PYTHON, "--implementation", "cp",
    )  # fmt: skip
    subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes", *elsewhere,
         "--target", str(python), "--requirement", str(LOCK)],
        check=True,
    )  # fmt: skip
    shutil.rmtree(python / "bin", ignore_errors=True)
    for pattern in _LEFT_OUT:
        for found in python.rglob(pattern):
            shutil.rmtree(found) if found.is_dir() else found.unlink()
    shutil.copytree(LIBRARY, python / "farthing", ignore=shutil.ignore_patterns(*_LEFT_OUT))
    if size_of(target) > LARGEST:
        raise RuntimeError(f"expected a layer of at most {LARGEST} bytes, got {size_of(target)}")


def size_of(folder: Path, pattern: str = "*") -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


def fingerprint(platform: str) -> str:
    """A hash of everything that the layer is made from."""
    digest = hashlib.sha256(f"{platform} {LAMBDA_PYTHON}".encode())
    for path in [LOCK, Path(__file__), *sorted(LIBRARY.rglob("*.py"))]:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


if __name__ == "__main__":  # make layer
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    build(folder, *sys.argv[2:])
    print(f"{folder}: {size_of(folder) / 2**20:.1f} MB unzipped")
