"""Spark on one machine, for commands that run a job: the check that it is installed, a session, and
a progress bar.

PySpark and its Java are large, so `make run` does not install them.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A small job ends before the optimising compiler is worth its time, and is not faster in two parts.
_SMALL = 50_000
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LINES_EACH = 25_000


class NoSpark(Exception):
    """The command needs Spark, which is not installed; the message says how to get it."""


@contextmanager
def spark_session(lines: int) -> Iterator["SparkSession"]:
    """A session that is sized for this number of input lines, and stopped at the end."""
    if find_spec("pyspark") is None:
        raise NoSpark(
            "this command needs Spark, which is not installed: `make spark` installs it with Java,"
            " as does `pip install 'farthing[glue]'`"
        )
    from glue_jobs.session import local_session

    logging.getLogger("py4j").setLevel(logging.WARNING)
    cores = os.cpu_count() or 1
    if lines <= _SMALL:
        session = local_session(cores=cores, memory="1g", partitions=1, java_options=_QUICK_START)
    else:
        parts = max(2 * cores, lines // _LINES_EACH)
        session = local_session(cores=cores, memory="4g", partitions=parts)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def progress_bar(about: str, shown: bool) -> Iterator[Callable[[str, int, int], None]]:
    """The function that a job calls with a stage's name, the steps done and all steps."""
    with tqdm(
        disable=not shown, file=sys.stderr, bar_format="{desc:<42}{bar:20} {n_fmt}/{total_fmt}"
    ) as bar:

        def show(stage: str, done: int, total: int) -> None:
            bar.total = total
            bar.n = done
            bar.set_description_str(f"{about}: {stage}")

        yield show
