"""Spark on one machine for the commands that run a job: is it there, a session, and how far it is.

PySpark and its Java are large, so they are no part of what `make run` installs.
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

# A small job ends before the optimising compiler has paid for itself, and gains by no second part.
_SMALL = 50_000
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LINES_EACH = 25_000


class NoSpark(Exception):
    """The command needs Spark, which is not installed; the message says how to get it."""


@contextmanager
def spark_session(lines: int) -> Iterator["SparkSession"]:
    """A session for so many lines of input, stopped at the end."""
    if find_spec("pyspark") is None:
        raise NoSpark(
            "this runs on Spark, which is not installed: `make spark` installs it with its Java,"
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
    """What a job calls with the name of a stage, and how many of how many steps are done."""
    with tqdm(
        disable=not shown, file=sys.stderr, bar_format="{desc:<42}{bar:20} {n_fmt}/{total_fmt}"
    ) as bar:

        def show(stage: str, done: int, total: int) -> None:
            bar.total = total
            bar.n = done
            bar.set_description_str(f"{about}: {stage}")

        yield show
