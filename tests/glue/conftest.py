"""One Spark session for all tests here, and a folder of lines to read from."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from glue_jobs.session import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session(cores=2, memory="1g", partitions=2)
    yield session
    session.stop()
