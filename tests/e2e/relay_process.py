"""A Farthing server as a child process: started as a user would, watched, and stopped."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
_START_SECONDS = 120
_STOP_SECONDS = 30
_TROUBLE = re.compile(r"Traceback|failed|ERROR|CRITICAL|Exception|never awaited|never retrieved")
# Refusals quote the reason that the client was told, for example `validation_failed`.
_REFUSAL = re.compile(r" INFO refused \S+ reason=")


def environment(data: Path, settings: dict[str, object]) -> dict[str, str]:
    """The variables of a server, with nothing of ours that could change it by accident."""
    inherited = {name: value for name, value in os.environ.items() if not _is_ours(name)}
    # The tests' agents are all on this machine.
    given = {"port": 0, "data": data, "allow_private_hosts": 1, **settings}
    path = os.pathsep.join([str(ROOT / "layers/farthing/python"), str(ROOT)])
    return {
        **inherited,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        **{f"FARTHING_{name.upper()}": str(value) for name, value in given.items()},
    }


def _is_ours(name: str) -> bool:
    return name.startswith(("FARTHING_", "AWS_"))


def launch(data: Path, settings: dict[str, object], log: IO[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "infra.local", "run"],
        cwd=ROOT,
        env=environment(data, settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )


class RelayProcess:
    def __init__(self, data: Path, **settings: object) -> None:
        self.data = data
        self.settings = settings
        self.log_path = data.parent / f"{data.name}.log"
        self.welcome: dict[str, str] = {}

    def start(self) -> "RelayProcess":
        with self.log_path.open("a") as log:
            self.process = launch(self.data, self.settings, log)
        hung = threading.Timer(_START_SECONDS, self.process.kill)
        hung.start()
        try:
            self.welcome = self._read_welcome()
        finally:
            hung.cancel()
        return self

    def _read_welcome(self) -> dict[str, str]:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "Farthing is up.\n":
            raise AssertionError(f"the server did not come up:\n{self.log}")
        rows: dict[str, str] = {}
        while "data" not in rows:
            row = self.process.stdout.readline()
            if not row:
                raise AssertionError(f"the server ended while it came up:\n{self.log}")
            name, value = re.split(r"\s{2,}|(?<=ILP address) ", row.strip(), maxsplit=1)
            rows[name] = value
        return rows

    @property
    def url(self) -> str:
        return self.welcome["relay"]

    @property
    def http(self) -> str:
        return self.welcome["information"]

    @property
    def pubkey(self) -> str:
        return self.welcome["public key"]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def memory_kb(self) -> int:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1])

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = _STOP_SECONDS) -> int:
        """The exit code, once it has ended."""
        try:
            return self.process.wait(seconds)
        finally:
            assert self.process.stdout is not None
            if not self.is_running:
                self.process.stdout.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        """End it as a power failure would, if it still runs."""
        if self.is_running:
            self.process.kill()
            self.wait()

    def check_log(self) -> None:
        lines = (line for line in self.log.splitlines() if not _REFUSAL.search(line))
        trouble = [line for line in lines if _TROUBLE.search(line)]
        assert not trouble, f"the server's log shows trouble:\n{self.log[-5000:]}"
