"""The session. Whoever asks for a Spark context after this was imported gets that of local mode."""

from pyspark import SparkContext

from glue_jobs.session import local_session

_SESSION = local_session(cores=2, memory="1g", partitions=2)


class GlueContext:
    def __init__(self, _context: SparkContext) -> None:
        self.spark_session = _SESSION
