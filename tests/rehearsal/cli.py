"""The CDK CLI at its pinned version, on the Node of the wheel: bootstrap, deploy, destroy."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from tests.rehearsal.emulator import ACCOUNT, CREDENTIALS, REGION
from tests.rehearsal.places import (
    CACHE,
    HERE,
    NODE,
    PYTHONPATH,
    ROOT,
    Failed,
    environment,
    run,
)

_PACKAGE = HERE / "cdk"
_INSTALLED = CACHE / "cdk"
_ASSEMBLY = CACHE / "cdk.out"
_OUTPUTS = CACHE / "outputs.json"
_SECONDS = 600

Outputs = Mapping[str, Mapping[str, str]]


def install() -> None:
    """By npm's own script: the wheel's `npm` is a link that did not survive packing."""
    lock = (_PACKAGE / "package-lock.json").read_text()
    kept = _INSTALLED / "package-lock.json"
    if kept.exists() and kept.read_text() == lock and (_INSTALLED / "node_modules").exists():
        return
    shutil.rmtree(_INSTALLED, ignore_errors=True)
    shutil.copytree(_PACKAGE, _INSTALLED)
    npm = NODE / "lib/node_modules/npm/bin/npm-cli.js"
    run(
        [str(NODE / "bin/node"), str(npm), "ci", "--no-fund", "--no-audit", "--ignore-scripts"],
        cwd=_INSTALLED,
        env=environment(),
    )


class Cdk:
    """The CLI with the emulator as its AWS."""

    def __init__(self, emulator: str) -> None:
        self.log = CACHE / "cdk.log"
        self.log.write_text("")
        self._environment = environment(
            **CREDENTIALS,
            PYTHONPATH=PYTHONPATH,
            AWS_ENDPOINT_URL=emulator,
            FARTHING_EMULATOR=emulator.removeprefix("http://"),
            CDK_DISABLE_VERSION_CHECK="1",
            JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION="1",
        )

    def version(self) -> str:
        return self._run("--version").splitlines()[-1]

    def bootstrap(self) -> None:
        self._run("bootstrap", f"aws://{ACCOUNT}/{REGION}")

    def deploy(self, **context: object) -> Outputs:
        """All stacks, with these values of the context; their outputs."""
        self.wait(self.start_deploy(**context))
        outputs: Outputs = json.loads(_OUTPUTS.read_text())
        return outputs

    def start_deploy(self, **context: object) -> "subprocess.Popen[bytes]":
        return self._start("deploy", *_of_the_app(context), "--require-approval", "never",
                           "--outputs-file", str(_OUTPUTS))  # fmt: skip

    def destroy(self) -> None:
        self._run("destroy", *_of_the_app({}), "--force")

    def wait(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            status = process.wait(_SECONDS)
        except BaseException:
            with suppress(ProcessLookupError):  # the CLI, the app that it runs, and the app's Node
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if status:
            raise Failed(f"cdk failed, see {self.log.name}:\n{self.log.read_text()[-3000:]}")

    def _run(self, *arguments: str) -> str:
        before = len(self.log.read_text())
        self.wait(self._start(*arguments))
        return self.log.read_text()[before:]

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            log.write(f"\n$ cdk {' '.join(arguments)}   ({time.strftime('%H:%M:%S')})\n".encode())
            log.flush()
            return subprocess.Popen(
                [str(NODE / "bin/node"), str(_INSTALLED / "node_modules/aws-cdk/bin/cdk"),
                 *arguments, "--no-notices", "--ci", "--no-color"],
                # A bootstrap reads no app, and finds none where there is no cdk.json.
                cwd=_INSTALLED if arguments[0] == "bootstrap" else ROOT,
                env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip


def _of_the_app(context: Mapping[str, object]) -> list[str]:
    given = [f"--context={name}={value}" for name, value in context.items()]
    app = f"{sys.executable} -m tests.rehearsal.app"
    return ["--all", "--app", app, "--output", str(_ASSEMBLY), "--progress", "events", *given]
