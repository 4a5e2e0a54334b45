"""The Java of the wheel, where a machine has none that Spark runs on."""

import os
import subprocess

import pytest

from glue_jobs import session


def test_it_starts_with_what_spark_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks a module that Spark names at every start."""
    monkeypatch.setenv("JAVA_HOME", "")  # so that whatever it is set to is undone
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr("shutil.which", lambda _: None)

    session._find_java()

    started = subprocess.run(
        [f"{os.environ['JAVA_HOME']}/bin/java", "-Dan.option=with a space",
         "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    assert 'version "17' in started.stderr
