"""Running the load generator against a server, and what it says of both."""

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.relay_process import ROOT

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Throughput:
    stored: int
    seconds: float
    server_cpu: float  # seconds
    load_cpu: float

    @property
    def rate(self) -> float:
        return self.stored / self.seconds

    @property
    def server_microseconds(self) -> float:
        return self.server_cpu / self.stored * 1e6

    def __add__(self, other: "Throughput") -> "Throughput":
        return Throughput(
            self.stored + other.stored,
            self.seconds + other.seconds,
            self.server_cpu + other.server_cpu,
            self.load_cpu + other.load_cpu,
        )


class LoadFailed(Exception):
    """The server refused something, or the generator ended early."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many clients with so many requests in flight each, for so long at most."""

    kind: str  # ws or http
    clients: int
    window: int
    seconds: float
    token: str = ""

    def run(self, port: int, requests: Sequence[bytes], server_pids: Sequence[int]) -> Throughput:
        command = [sys.executable, "-m", "tests.bench.load", self.kind, "127.0.0.1", port,
                   self.clients, self.window, self.seconds,
                   *([self.token] if self.token else [])]  # fmt: skip
        generator = subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert generator.stdin is not None and generator.stdout is not None
            generator.stdin.write(f"{len(requests)}\n")
            generator.stdin.writelines(f"{b64encode(each).decode()}\n" for each in requests)
            generator.stdin.flush()
            if generator.stdout.readline() != "ready\n":
                raise LoadFailed("the load generator could not connect")
            before = sum(map(cpu_seconds, server_pids))
            generator.stdin.write("\n")
            generator.stdin.flush()
            answer = generator.stdout.readline()
            used = sum(map(cpu_seconds, server_pids)) - before
        finally:
            generator.kill()
            generator.communicate()
        return _throughput(answer, used)


def _throughput(answer: str, server_cpu: float) -> Throughput:
    if not answer:
        raise LoadFailed("the load generator ended early")
    tally = json.loads(answer)
    if tally["refused"]:
        raise LoadFailed(f"{tally['refused']} requests were refused: {tally['reason']}")
    return Throughput(tally["stored"], tally["seconds"], server_cpu, tally["cpu_seconds"])


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
