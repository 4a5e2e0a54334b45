"""The systemd unit: valid, confined, and starting what is there."""

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.e2e.relay_process import ROOT

UNIT = ROOT / "infra/public/farthing.service"
HOME = "/opt/farthing"
SYSTEMD = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed")
# Of 10, where 10 is a service that may do everything.
MOST_EXPOSED = 1.5


def directives() -> dict[str, list[str]]:
    """All values of each directive, whatever its section."""
    found = defaultdict(list)
    for line in UNIT.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


def environment() -> dict[str, str]:
    return dict(each.split("=", 1) for each in directives()["Environment"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("User", "farthing"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("CapabilityBoundingSet", ""),
        ("StateDirectory", "farthing"),
        ("StateDirectoryMode", "0700"),
        ("UMask", "0077"),
        ("Restart", "on-failure"),
    ],
)
def test_the_service_is_confined(name: str, value: str) -> None:
    assert directives()[name] == [value]


def test_the_data_folder_is_the_state_directory() -> None:
    assert environment()["FARTHING_DATA"] == "/var/lib/farthing"


def test_the_service_stops_later_than_the_server_gives_up() -> None:
    """The server waits for requests, then for its threads; systemd must not cut it short."""
    assert int(directives()["TimeoutStopSec"][0]) >= 30


def test_the_unit_starts_a_command_that_exists() -> None:
    (command,) = directives()["ExecStart"]
    assert command == f"{HOME}/.venv/bin/python -m infra.local run"
    for folder in environment()["PYTHONPATH"].split(":"):
        assert (ROOT / Path(folder).relative_to(HOME)).is_dir()
    assert (ROOT / "infra/local/__main__.py").is_file()


def test_the_user_is_made_by_the_file_beside_it() -> None:
    (line,) = re.findall(
        "^u .*", (ROOT / "infra/public/farthing.sysusers").read_text(), re.MULTILINE
    )
    assert line.split()[1] == directives()["User"][0] == directives()["Group"][0]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit as if the repository were installed where it says, with a Python to start."""
    program = tmp_path / ".venv/bin/python"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(HOME, str(tmp_path)))
    return unit


@needs_systemd
def test_systemd_finds_nothing_wrong(installed: Path) -> None:
    done = subprocess.run([SYSTEMD or "", "verify", installed], capture_output=True, text=True)
    # It also reads units of this machine, which are none of ours.
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert not ours


@needs_systemd
def test_systemd_finds_it_little_exposed(installed: Path) -> None:
    done = subprocess.run(
        [SYSTEMD or "", "security", "--offline=true", installed], capture_output=True, text=True
    )
    level = re.search(r"Overall exposure level.*: ([\d.]+)", done.stdout)
    if level is None:
        pytest.skip("this systemd cannot look at a unit that is not installed")
    assert float(level[1]) <= MOST_EXPOSED
