"""What happened and how long it took, as it happens: on the screen and in a file."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


class Transcript:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        self._started = time.monotonic()
        self.steps = 0

    def close(self) -> None:
        self._file.close()

    def _write(self, line: str) -> None:
        outputs: tuple[TextIO, ...] = (sys.stdout, self._file)
        for output in outputs:
            print(line, file=output, flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One step: its title, what is said during it, and how long it took or why it failed."""
        self.steps += 1
        started = time.monotonic()
        self._write(f"\n{self.steps:>2}. {title}")
        try:
            yield
        except BaseException as error:
            self._write(f"    FAILED after {time.monotonic() - started:.1f} s: {_text(error)}")
            raise
        self._write(f"    done in {time.monotonic() - started:.1f} s")

    def say(self, text: str) -> None:
        for line in text.splitlines():
            self._write(f"      {line}")

    def end(self, text: str) -> None:
        self._write(f"\n{text}, {self.steps} steps in {time.monotonic() - self._started:.0f} s")


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
