"""The Python relay `nostr-relay` from PyPI, in an environment of its own, as its fastest server."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.own_environment import CannotRun, OwnEnvironment, without_our_path

_OWN = OwnEnvironment("nostr-relay")
_START_SECONDS = 30
# Its own defaults, but for the port and a line of log for every event. One process, as ours is one.
_CONFIG = """\
DEBUG: false
storage:
  sqlalchemy.url: sqlite+aiosqlite:///nostr.sqlite3
  num_concurrent_reqs: 10
  num_concurrent_adds: 2
  validators:
    - nostr_relay.validators.is_not_too_large
    - nostr_relay.validators.is_signed
    - nostr_relay.validators.is_recent
    - nostr_relay.validators.is_not_hellthread
verification:
  nip05_verification: disabled
authentication:
  enabled: false
gunicorn:
  bind: 127.0.0.1:{port}
purple:
  host: 127.0.0.1
  port: {port}
  workers: 1
  disable_compression: true
message_timeout: 1800
subscription_limit: 32
logging:
  version: 1
  loggers:
    nostr_relay:
      level: WARNING
"""


@dataclass(frozen=True, slots=True)
class Rival:
    port: int
    pids: list[int]


@contextmanager
def running() -> Iterator[Rival]:
    program = _installed()
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        (Path(folder) / "config.yaml").write_text(_CONFIG.format(port=port))
        process = subprocess.Popen(
            [program, "--config", "config.yaml", "serve", "--use-purple"],
            cwd=folder, env=without_our_path(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            _wait_for(port, process, Path(log.name))
            yield Rival(port, _session(process.pid))
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _installed() -> Path:
    """Its program."""
    return _OWN.installed().with_name("nostr-relay")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    last = log.read_text().strip().splitlines()[-1:]
    raise CannotRun(f"it did not start: {' '.join(last)}")


def _session(leader: int) -> list[int]:
    """The processes that it runs as: it starts a worker."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getsid(int(entry.name)) == leader:
                    pids.append(int(entry.name))
            except ProcessLookupError:
                continue
    return pids
