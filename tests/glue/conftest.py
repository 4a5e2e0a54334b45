"""One Spark session for all tests here, and a folder of lines to read from."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from glue_jobs.session import local_session

# Small graphs end before the optimising compiler has paid for itself.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session(memory="1g", partitions=2, java_options=QUICK_START)
    yield session
    session.stop()
