"""The relays that are measured beside each other, and what each uses of the machine."""

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.loading import cpu_seconds
from tests.bench.own_environment import CannotRun, OwnEnvironment, without_our_path
from tests.e2e.relay_process import ROOT, RelayProcess

FARTHING = "Farthing"
RUST = "rust-nostr"

_STOP_SECONDS = 30
_STEP_SECONDS = 0.3
_IDLE_SHARE = 0.05
_SETTLE_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Peer:
    """A relay that runs."""

    name: str
    port: int
    pid: int
    folder: Path

    def cpu(self) -> float:
        """Seconds that all of its processes have used so far."""
        return sum(map(cpu_seconds, process_tree(self.pid)))

    def settled_cpu(self) -> float:
        """The same, once the relay has done what it puts off until after its answer."""
        used, deadline = self.cpu(), time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_STEP_SECONDS)
            before, used = used, self.cpu()
            if used - before <= _STEP_SECONDS * _IDLE_SHARE:
                break
        return used

    def resident_mb(self) -> float:
        return self._memory_mb("VmRSS")

    def private_mb(self) -> float:
        """Memory without what is mapped from files."""
        return self._memory_mb("RssAnon")

    def _memory_mb(self, field: str) -> float:
        return sum(_status_kb(pid, field) for pid in process_tree(self.pid)) * 1024 / 1e6

    def disk_mb(self) -> float:
        """What its files take: a sparse file counts as far as it is filled."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return sum(path.stat().st_blocks for path in files) * 512 / 1e6


Start = Callable[[Path], AbstractContextManager[Peer]]


@contextmanager
def farthing(folder: Path) -> Iterator[Peer]:
    """As a user starts it, but free and without a rate limit."""
    _allow_many_connections()
    relay = RelayProcess(folder, price_per_byte=0, requests_per_second=0).start()
    try:
        yield Peer(FARTHING, relay.port, relay.process.pid, folder)
    finally:
        relay.stop()
    relay.check_log()


@contextmanager
def rust_nostr(folder: Path) -> Iterator[Peer]:
    _allow_many_connections()
    folder.mkdir(parents=True)
    process = subprocess.Popen(
        [_rust_python(), ROOT / "tests/bench/beside/rust_relay.py", folder],
        env=without_our_path(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        if not port:
            raise CannotRun(f"{RUST}'s relay ended while it came up")
        yield Peer(RUST, int(port), process.pid, folder)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


# In this order in the first round.
PEERS: dict[str, Start] = {FARTHING: farthing, RUST: rust_nostr}


_OWN = OwnEnvironment("rust-nostr")


def install_rust() -> None:
    """Install the version that is measured. Otherwise the one of the tests runs."""
    _OWN.installed()


def _rust_python() -> Path:
    return _OWN.python or Path(sys.executable)


def rust_version() -> str:
    question = "from importlib.metadata import version; print(version('nostr-sdk'))"
    answer = subprocess.run(
        [_rust_python(), "-c", question],
        env=without_our_path(), check=True, capture_output=True, text=True,
    )  # fmt: skip
    return f"the relay in nostr-sdk {answer.stdout.strip()}, on LMDB"


def process_tree(root: int) -> list[int]:
    """A process and all that it started, as far as they still run."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:  # and those that are found meanwhile
        found += children.get(pid, [])
    return found


def _status_kb(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise LookupError(f"/proc/{pid}/status has no {field}")


def _allow_many_connections() -> None:
    """As many open files as may be; what is started from here inherits it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
