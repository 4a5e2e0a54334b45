"""Shared by the jobs' `main()` functions: arguments, the session, and the export of a source.

Only `main()` functions call this module, and only they and this module import Glue and AWS.
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from glue_jobs.events_source import Format
from glue_jobs.generations import EngineMaker

_POLL_SECONDS = 20.0
# Exports are made at least once a day.
_FRESH_SECONDS = 36 * 3600
_DONE = "/manifest-summary.json"  # the last file that DynamoDB writes


class ExportFailed(Exception):
    """DynamoDB could not export a table; the message is DynamoDB's."""


class GlueRun:
    """A job's run: `arguments` by name, and the session."""

    def __init__(self, needed: Sequence[str], optional: Sequence[str]) -> None:
        from awsglue.context import GlueContext
        from awsglue.job import Job
        from awsglue.utils import getResolvedOptions
        from pyspark import SparkContext

        # Glue raises an error for a requested argument that was not given.
        given = [name for name in optional if f"--{name}" in sys.argv]
        self.arguments: dict[str, str] = getResolvedOptions(sys.argv, ["JOB_NAME", *needed, *given])
        glue = GlueContext(SparkContext.getOrCreate())
        self.spark: SparkSession = glue.spark_session
        self._job = Job(glue)
        self._job.init(self.arguments["JOB_NAME"], self.arguments)

    def commit(self) -> None:
        self._job.commit()

    @property
    def form(self) -> Format:
        return Format(self.arguments.get("SOURCE_FORMAT", Format.DYNAMODB))

    def paths(self, given: str, table_arn: str) -> list[str]:
        """The paths of the events or of the ledger's items: given paths, the last complete export,
        or a new export."""
        if given in self.arguments:
            return self.arguments[given].split(",")
        import boto3

        arn = self.arguments[table_arn]
        folder = f"{self.arguments['EXPORT_TO'].rstrip('/')}/{table_arn.partition('_')[0].lower()}"
        made = newest_export(boto3.client("s3"), folder, time.time() - _FRESH_SECONDS)
        return [made or export_table(boto3.client("dynamodb"), arn, folder)]

    def engine_maker(self) -> EngineMaker:
        """A maker of DynamoDB engines, also for executors, which do not know the region."""
        import boto3

        from farthing.store.dynamodb import DynamoDBEngine

        region = boto3.session.Session().region_name
        return partial(DynamoDBEngine, self.arguments["TABLE_PREFIX"], region=region)

    def number(self, name: str, default: int) -> int:
        return int(self.arguments.get(name, default))


def newest_export(client: Any, folder: str, since: float) -> str | None:
    """The data folder of the newest complete export that was made after `since`, or None."""
    place = urlsplit(folder)
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=place.netloc, Prefix=f"{place.path.strip('/')}/AWSDynamoDB/"
    )
    made = [
        (found["LastModified"].timestamp(), found["Key"])
        for page in pages
        for found in page.get("Contents", ())
        if found["Key"].endswith(_DONE)
    ]
    written, key = max(made, default=(0.0, ""))
    return f"s3://{place.netloc}/{key.removesuffix(_DONE)}/data/" if written >= since else None


def export_table(
    client: Any, table_arn: str, to: str, wait: Callable[[float], None] = time.sleep
) -> str:
    """Export a table as it is now, in DynamoDB JSON. Returns the data folder."""
    place = urlsplit(to)
    begun = client.export_table_to_point_in_time(
        TableArn=table_arn,
        S3Bucket=place.netloc,
        S3Prefix=place.path.strip("/"),
        ExportFormat="DYNAMODB_JSON",
    )["ExportDescription"]
    arn = begun["ExportArn"]
    while begun["ExportStatus"] == "IN_PROGRESS":
        wait(_POLL_SECONDS)
        begun = client.describe_export(ExportArn=arn)["ExportDescription"]
    if begun["ExportStatus"] != "COMPLETED":
        raise ExportFailed(begun.get("FailureMessage", begun["ExportStatus"]))
    return f"{to.rstrip('/')}/AWSDynamoDB/{arn.rpartition('/')[2]}/data/"
