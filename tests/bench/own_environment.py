"""Python programs that are measured beside Farthing, each in an environment of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.relay_process import ROOT


class CannotRun(Exception):
    """It could not be installed or started here; the message says why."""


@dataclass(frozen=True, slots=True)
class OwnEnvironment:
    """`NAME.txt` beside this file pins what is installed."""

    name: str

    @property
    def _folder(self) -> Path:
        return ROOT / ".cache" / f"bench-{self.name}"

    @property
    def _pins(self) -> str:
        return Path(__file__).with_name(f"{self.name}.txt").read_text()

    @property
    def python(self) -> Path | None:
        """Its interpreter; None before the environment is installed."""
        ready = self._folder / "ready"
        if ready.exists() and ready.read_text() == self._pins:
            return self._folder / "bin" / "python"
        return None

    def installed(self) -> Path:
        """Its interpreter, after installing unless that was done before."""
        python = self._folder / "bin" / "python"
        if self.python is None:
            pins = Path(__file__).with_name(f"{self.name}.txt")
            try:
                _run([sys.executable, "-m", "venv", "--clear", self._folder])
                _run([python, "-m", "pip", "install", "--quiet", "-r", pins])
            except subprocess.CalledProcessError as error:
                last = (error.stderr or "").strip().splitlines()[-1:]
                raise CannotRun(f"installing {self.name} failed: {' '.join(last)}") from None
            (self._folder / "ready").write_text(self._pins)
        return python


def without_our_path() -> dict[str, str]:
    """The environment variables without the path of our modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _run(command: list[object]) -> None:
    subprocess.run(
        [str(part) for part in command],
        check=True, capture_output=True, text=True, env=without_our_path(),
    )  # fmt: skip
