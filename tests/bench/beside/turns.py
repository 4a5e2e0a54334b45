"""One load on one relay, and what was found over the rounds."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.bench.beside.relays import Peer
from tests.bench.loading import Load, LoadFailed
from tests.bench.result import Row, Target, at_least, at_most
from tests.e2e.relay_process import ROOT

# Of one core. Above that the generator may be what is measured.
_BUSY = 0.8


@dataclass(frozen=True, slots=True)
class Finding:
    operations: int
    seconds: float
    server_cpu: float  # seconds
    load_cpu: float
    p50: float = 0.0  # milliseconds
    p99: float = 0.0
    lost: int = 0

    @property
    def rate(self) -> float:
        return self.operations / self.seconds

    @property
    def microseconds(self) -> float:
        return self.server_cpu / self.operations * 1e6

    @property
    def load_share(self) -> float:
        return self.load_cpu / self.seconds


def loaded(peer: Peer, kind: str, **job: Any) -> Finding:
    """What the generator of `load` finds of a relay."""
    generator = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.beside.load"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert generator.stdin is not None and generator.stdout is not None
        generator.stdin.write(json.dumps({"kind": kind, "port": peer.port, **job}) + "\n")
        generator.stdin.flush()
        answer = generator.stdout.readline()
        before = peer.cpu()
        if answer == "ready\n":
            generator.stdin.write("\n")
            generator.stdin.flush()
            answer = generator.stdout.readline()
        used = peer.cpu() - before
    finally:
        generator.kill()
        generator.communicate()
    return _finding(peer, answer, used)


def _finding(peer: Peer, answer: str, used: float) -> Finding:
    if not answer:
        raise LoadFailed(f"{peer.name}: the load generator ended early")
    tally = json.loads(answer)
    if "failed" in tally:
        raise LoadFailed(f"{peer.name}: {tally['failed']}")
    return Finding(
        tally["operations"], tally["seconds"], used, tally["cpu_seconds"], tally["p50"],
        tally["p99"], tally["lost"],
    )  # fmt: skip


def ingested(peer: Peer, load: Load, messages: Sequence[bytes]) -> Finding:
    """All of these events, with what a relay does for them after its last OK."""
    before = peer.settled_cpu()
    result = load.run(peer.port, messages, [])
    used = peer.settled_cpu() - before
    if result.stored < len(messages):
        raise LoadFailed(f"{peer.name}: {result.stored} of {len(messages)} events in time")
    return Finding(result.stored, result.seconds, used, result.load_cpu)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The findings of all rounds, ours and theirs."""

    name: str
    ours: Sequence[Finding]
    theirs: Sequence[Finding]
    rival: str

    def rate(self, unit: str, bound: float, cpu: Target | None = None, note: str = "") -> list[Row]:
        """The rate and the CPU. The target is on the CPU where the generator was the limit."""
        limited = self._limited_by_generator()
        target = None if limited else at_least(bound)
        if limited and cpu is None:
            cpu = at_most(1 / bound)
        return [
            self._row("", unit, "rate", target, self._notes(limited, note)),
            self._row(", server CPU", "µs", "microseconds", cpu),
        ]

    def latency(self, cut: str, bound: float, note: str = "") -> list[Row]:
        return [self._row(f", {cut}", "ms", cut, at_most(bound), note)]

    def cpu(self, bound: float) -> list[Row]:
        return [self._row(", server CPU", "µs", "microseconds", at_most(bound))]

    def _row(self, what: str, unit: str, field: str, target: Target | None, note: str = "") -> Row:
        ours, theirs = (
            median(getattr(each, field) for each in side) for side in (self.ours, self.theirs)
        )
        name = f"peers: {self.name}{what}"
        return Row(name, ours, unit, theirs, f"{unit} {self.rival}", target, note)

    def _limited_by_generator(self) -> bool:
        return any(each.load_share > _BUSY for each in (*self.ours, *self.theirs))

    def _notes(self, limited: bool, note: str) -> str:
        ours, theirs = (
            median(each.load_share for each in side) for side in (self.ours, self.theirs)
        )
        notes = [note] if note else []
        notes.append(f"generator busy {ours:.0%} against {theirs:.0%} of one core")
        if limited:
            notes.append("it is the limit, so the target is on the server's CPU")
        return "; ".join(notes)
