"""MiniStack, an emulator of AWS, in an environment of its own: installed, started, and stopped with
all that it started. It listens on loopback and checks every call against the caller's policies."""

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from tests.rehearsal.places import CACHE, HERE, Failed, environment, run

_LOCK = HERE / "ministack.lock"
_VENV = CACHE / "emulator"
_START_SECONDS = 60
_STOP_SECONDS = 10

REGION = "us-east-1"
ACCOUNT = "000000000000"
# The emulator's root: what is done with it is not checked, what functions do is.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
}


def install() -> None:
    """The locked versions. Functions run on this environment's Python, as the layer expects."""
    ready = _VENV / f".ready-{_LOCK.stat().st_mtime_ns}"
    if ready.exists():
        return
    shutil.rmtree(_VENV, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(_VENV)])
    python = str(_VENV / "bin/python")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--python", python]
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    given = ["--quiet", "--require-hashes", "-r", str(_LOCK)]
    try:
        run([*uv, *given])
    except (Failed, OSError):  # as in the Makefile: pip may reach an index that uv does not
        run([*pip, *given])
    ready.touch()


class Emulator:
    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = CACHE / "emulator.log"
        self._folder = CACHE / "tmp"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, dynamodb: str) -> None:
        """`dynamodb` is where functions find DynamoDB: at whoever stands between."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        variables = {
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_REGION": REGION,
            "AUTH": "true",
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb,
            # Listeners that nothing here wants.
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            "TMPDIR": str(self._folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with self.log.open("wb") as log:
            # A group of its own: whatever it starts can be ended with it.
            self._process = subprocess.Popen(
                [str(_VENV / "bin/python"), str(HERE / "patient_emulator.py")],
                env=environment(**variables),
                cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/_ministack/health", timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise Failed(f"the emulator did not come up:\n{self.log.read_text()[-4000:]}")

    def stop(self) -> None:
        """End it and its functions, whatever state they are in."""
        if self._process is None:
            return
        group = self._process.pid
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with suppress(ProcessLookupError):  # nobody is left
            os.killpg(group, signal.SIGKILL)
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)
