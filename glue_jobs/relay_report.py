"""Glue job: what the relay stored and earned, by kind and day, as Parquet and as one HTML page.

Events come from the events table, money from the receipts in the ledger table. What the page looks
like is `report_page`'s.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from glue_jobs.events_source import Format, read_events, well_formed
from glue_jobs.report_page import Activity, Page, Payer, Totals, render
from glue_jobs.session import cut_lineage

RECEIPT = "receipt#"
DELIVERY = "delivery#"
_LEDGER = {
    "pk": "string", "peer": "string", "event_id": "string", "scheme": "string",
    "amount": "bigint", "price": "bigint", "time": "bigint", "kind": "int", "size": "bigint",
}  # fmt: skip
_LAST_SECOND = 253_402_300_799  # of the year 9999, which is as far as dates go


@dataclass(frozen=True)
class Report:
    """`activity` and `payers` are frames; `page` is the HTML."""

    activity: DataFrame
    payers: DataFrame
    page: str

    def write_parquet(self, folder: str) -> None:
        self.activity.write.mode("overwrite").parquet(f"{folder}/activity")
        self.payers.write.mode("overwrite").parquet(f"{folder}/payers")


def relay_report(
    events: DataFrame, ledger: DataFrame, now: int, *, name: str = "", days: int = 30, top: int = 10
) -> Report:
    """From events and ledger rows (see `read_ledger`): the report of the last so many days."""
    today = datetime.fromtimestamp(now, UTC).date()
    first = today - timedelta(days=days - 1)
    recent = F.col("day").between(F.lit(first), F.lit(today))
    stored = with_day(well_formed(events), "created_at").where(recent)
    receipts = with_day(ledger.where(F.col("pk").startswith(RECEIPT)), "time").where(recent)
    deliveries = with_day(ledger.where(F.col("pk").startswith(DELIVERY)), "time").where(recent)
    activity = cut_lineage(activity_by_kind_and_day(stored, receipts, deliveries))
    payers = cut_lineage(top_payers(receipts, top))
    page = Page(
        name=name,
        first=first,
        last=today,
        totals=_totals(activity, stored, receipts),
        # Bounded by the days; kinds are few, and a flood of them is one `other`.
        activity=[Activity(*row) for row in _few_kinds(activity).collect()],
        authors={row["day"]: row["authors"] for row in authors_by_day(stored).collect()},
        payers=[Payer(*row) for row in payers.collect()],
    )
    return Report(activity, payers, render(page))


def read_ledger(spark: SparkSession, paths: Sequence[str], form: Format) -> DataFrame:
    """Receipts and deliveries; `pk` says which is which. What is neither is left out."""
    if form is Format.PARQUET:
        rows = spark.read.parquet(*paths)
        there = set(rows.columns)
        rows = rows.select(
            *(
                (F.col(name).try_cast(kind) if name in there else F.lit(None).cast(kind)).alias(
                    name
                )
                for name, kind in _LEDGER.items()
            )
        )
    else:
        lines = spark.read.text(list(paths), lineSep="\n")
        rows = ledger_items(lines) if form is Format.DYNAMODB else ledger_lines(lines)
    is_known = F.col("pk").startswith(RECEIPT) | F.col("pk").startswith(DELIVERY)
    return rows.where(is_known & F.col("time").isNotNull())


def ledger_items(lines: DataFrame) -> DataFrame:
    """Out of a DynamoDB export."""
    fields = ", ".join(
        f"{name}: struct<{'S' if kind == 'string' else 'N'}: string>"
        for name, kind in _LEDGER.items()
    )
    items = lines.select(F.from_json("value", f"Item struct<{fields}>")["Item"].alias("item"))
    return items.select(
        *(
            F.col(f"item.{name}.{'S' if kind == 'string' else 'N'}").try_cast(kind).alias(name)
            for name, kind in _LEDGER.items()
        )
    )


def ledger_lines(lines: DataFrame) -> DataFrame:
    """One receipt a line, its fields as they are; without a `pk` it is a receipt."""
    schema = ", ".join(f"{name} {kind}" for name, kind in _LEDGER.items())
    rows = lines.select(F.from_json("value", schema).alias("row")).select("row.*")
    return rows.withColumn("pk", F.coalesce("pk", F.concat(F.lit(RECEIPT), "peer")))


def with_day(frame: DataFrame, seconds: str) -> DataFrame:
    """`day` from epoch seconds, in UTC whatever the session's time zone."""
    bounded = F.when(F.col(seconds).between(0, _LAST_SECOND), F.col(seconds))
    days = F.floor(bounded / 86400).cast("int")
    return frame.withColumn("day", F.date_add(F.lit("1970-01-01").cast("date"), days))


def activity_by_kind_and_day(
    stored: DataFrame, receipts: DataFrame, deliveries: DataFrame
) -> DataFrame:
    """day, kind, events, authors, bytes, paid, revenue, deliveries."""
    by = ["day", "kind"]
    told = stored.groupBy(*by).agg(
        F.count(F.lit(1)).alias("events"),
        F.count_distinct("pubkey").alias("authors"),
        F.sum("size").alias("bytes"),
    )
    earned = receipts.groupBy(*by).agg(
        F.count(F.lit(1)).alias("paid"), F.sum("amount").alias("revenue")
    )
    sent = deliveries.groupBy(*by).agg(F.count(F.lit(1)).alias("deliveries"))
    joined = told.join(earned, by, "full").join(sent, by, "full")
    counts = [name for name in joined.columns if name not in by]
    return joined.fillna(0, counts).orderBy(*by)


def authors_by_day(stored: DataFrame) -> DataFrame:
    """day, authors. Not the sum over kinds: most write more than one."""
    return stored.groupBy("day").agg(F.count_distinct("pubkey").alias("authors"))


def top_payers(receipts: DataFrame, top: int) -> DataFrame:
    """peer, packets, bytes, revenue: those who paid most; on a tie by name."""
    by_peer = receipts.groupBy("peer").agg(
        F.count(F.lit(1)).alias("packets"),
        F.sum(F.coalesce("size", F.lit(0))).alias("bytes"),
        F.sum("amount").alias("revenue"),
    )
    return by_peer.orderBy(F.desc("revenue"), "peer").limit(top)


def _few_kinds(activity: DataFrame, most: int = 12) -> DataFrame:
    """The kinds with most events and revenue by name, the others as kind -1."""
    weight = activity.groupBy("kind").agg(F.sum("events").alias("n"), F.sum("revenue").alias("r"))
    by_events = weight.orderBy(F.desc("n"), "kind").limit(most)
    by_revenue = weight.where("r > 0").orderBy(F.desc("r"), "kind").limit(most)
    named = by_events.union(by_revenue).select("kind").distinct().withColumn("named", F.lit(True))
    few = activity.join(named, "kind", "left").withColumn(
        "kind", F.when(F.col("named"), F.col("kind")).otherwise(-1)
    )
    return few.groupBy("day", "kind").agg(*_sums()).orderBy("day", "kind")


def _sums() -> list[Column]:
    names = ("events", "authors", "bytes", "paid", "revenue", "deliveries")
    return [F.sum(name).alias(name) for name in names]


def _totals(activity: DataFrame, stored: DataFrame, receipts: DataFrame) -> Totals:
    sums = activity.agg(*_sums()).drop("authors").first()
    authors = stored.agg(F.count_distinct("pubkey")).first()[0]
    payers = receipts.agg(F.count_distinct("peer")).first()[0]
    return Totals(**{name: value or 0 for name, value in sums.asDict().items()},
                  authors=authors, payers=payers)  # fmt: skip


def main() -> None:
    """Arguments: EVENTS, LEDGER (paths, comma-separated), SOURCE_FORMAT, NAME, OUTPUT (an s3://
    folder for `activity/`, `payers/` and `report.html`)."""
    import boto3
    from awsglue.context import GlueContext
    from awsglue.job import Job
    from awsglue.utils import getResolvedOptions
    from pyspark.context import SparkContext

    names = ["JOB_NAME", "EVENTS", "LEDGER", "SOURCE_FORMAT", "NAME", "OUTPUT"]
    arguments = getResolvedOptions(sys.argv, names)
    glue = GlueContext(SparkContext.getOrCreate())
    job = Job(glue)
    job.init(arguments["JOB_NAME"], arguments)
    form, spark = Format(arguments["SOURCE_FORMAT"]), glue.spark_session
    events = read_events(spark, arguments["EVENTS"].split(","), form)
    ledger = read_ledger(spark, arguments["LEDGER"].split(","), form)
    report = relay_report(events, ledger, int(time.time()), name=arguments["NAME"])
    folder = arguments["OUTPUT"].rstrip("/")
    report.write_parquet(folder)
    bucket, _, prefix = folder.removeprefix("s3://").partition("/")
    boto3.client("s3").put_object(
        Bucket=bucket,
        Key=f"{prefix}/report.html".lstrip("/"),
        Body=report.page.encode(),
        ContentType="text/html; charset=utf-8",
    )
    job.commit()


if __name__ == "__main__":
    main()
