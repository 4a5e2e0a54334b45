"""Glue job: what the relay stored and earned, by kind and day, as Parquet and as one HTML page.

Events come from the events table, money from the receipts in the ledger table. `report_page` makes
the page.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from glue_jobs.events_source import Format, read_aether_events, read_events, well_formed
from glue_jobs.report_page import AETHER, FORWARDED, OTHER, Activity, Page, Payer, Totals, render
from glue_jobs.session import cut_lineage

RECEIPT = "receipt#"
PURSE = "purse#"
_RECEIPT_COLUMNS = {
    "pk": "string", "peer": "string", "amount": "bigint", "outgoing": "bigint",
    "next_hop": "string", "purpose": "string", "way": "string", "time": "bigint", "kind": "int",
    "size": "bigint", "space": "string",
}  # fmt: skip
_COUNTS = ("events", "authors", "bytes", "deliveries", "forwards", "revenue")
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
    events: DataFrame,
    receipts: DataFrame,
    now: int,
    *,
    name: str = "",
    unit: str = "units",
    days: int = 30,
    top: int = 10,
    aether: DataFrame | None = None,
) -> Report:
    """The report of the last days, from events and receipts (see `read_receipts`).

    An event counts on the day that it was created, a receipt on the day of the payment. Aether
    events (see `read_aether_events`) are counted apart, as one kind.
    """
    today = datetime.fromtimestamp(now, UTC).date()
    first = today - timedelta(days=days - 1)
    recent = F.col("day").between(F.lit(first), F.lit(today))
    counted = well_formed(events).select("pubkey", "created_at", "kind", "size")
    if aether is not None:
        apart = aether.select("pubkey", "created_at", F.lit(AETHER).alias("kind"), "size")
        counted = counted.unionByName(apart)
    stored = with_day(counted, "created_at").where(recent)
    settled = with_day(receipts, "time").where(recent)
    activity = cut_lineage(activity_by_kind_and_day(stored, settled))
    payers = cut_lineage(top_payers(settled, top))
    page = Page(
        name=name,
        unit=unit,
        first=first,
        last=today,
        totals=_totals(activity, stored, settled),
        # Small: some rows for each day, because all rare kinds are counted as one.
        activity=[Activity(*row) for row in _few_kinds(activity).collect()],
        authors={row["day"]: row["authors"] for row in authors_by_day(stored).collect()},
        payers=[Payer(*row) for row in payers.collect()],
    )
    return Report(activity, payers, render(page))


def read_receipts(spark: SparkSession, paths: Sequence[str], form: Format) -> DataFrame:
    """Receipts of the ledger: peer, time, kind, size, revenue, is_forwarded. The revenue of a
    packet for us is its amount, that of a forwarded packet is our fee. Money in a purse becomes
    revenue when an event is paid from the purse, which is then the payer."""
    if form is Format.PARQUET:
        rows = _receipt_columns(spark.read.parquet(*paths))
    else:
        lines = spark.read.text(list(paths), lineSep="\n")
        rows = receipt_items(lines) if form is Format.DYNAMODB else receipt_lines(lines)
    purpose = F.coalesce("purpose", F.lit(""))
    is_packet = F.col("pk").startswith(RECEIPT) & (purpose != "purse filled")
    is_drawn = (
        F.col("pk").startswith(PURSE) & (purpose == "purse drawn") & (F.col("way") == "event")
    )
    is_receipt = (is_packet | is_drawn) & F.col("time").isNotNull()
    # Receipts of earlier versions do not name their purpose.
    is_forwarded = F.coalesce(
        F.col("purpose") == "forwarded", F.col("next_hop") != "", F.lit(False)
    )
    return rows.where(is_receipt).select(
        F.coalesce("peer", "pk").alias("peer"),
        "time",
        F.when(is_forwarded, FORWARDED)
        .when(F.col("space") == "aether", AETHER)
        .otherwise(F.col("kind"))
        .alias("kind"),
        F.coalesce("size", F.lit(0)).alias("size"),
        (F.coalesce("amount", F.lit(0)) - F.coalesce("outgoing", F.lit(0))).alias("revenue"),
        is_forwarded.alias("is_forwarded"),
    )


def receipt_items(lines: DataFrame) -> DataFrame:
    """Receipts from the items of a DynamoDB export."""
    types = {name: "S" if kind == "string" else "N" for name, kind in _RECEIPT_COLUMNS.items()}
    fields = ", ".join(f"{name}: struct<{of}: string>" for name, of in types.items())
    items = lines.select(F.from_json("value", f"Item struct<{fields}>")["Item"].alias("item"))
    return items.select(
        *(
            F.col(f"item.{name}.{types[name]}").try_cast(kind).alias(name)
            for name, kind in _RECEIPT_COLUMNS.items()
        )
    )


def receipt_lines(lines: DataFrame) -> DataFrame:
    """Receipts from lines of JSON, one per line. A line without a `pk` is a packet's receipt."""
    schema = ", ".join(f"{name} {kind}" for name, kind in _RECEIPT_COLUMNS.items())
    rows = lines.select(F.from_json("value", schema).alias("row")).select("row.*")
    return rows.withColumn("pk", F.coalesce("pk", F.concat(F.lit(RECEIPT), "peer")))


def _receipt_columns(rows: DataFrame) -> DataFrame:
    there = set(rows.columns)
    return rows.select(
        *(
            (F.col(name).try_cast(kind) if name in there else F.lit(None).cast(kind)).alias(name)
            for name, kind in _RECEIPT_COLUMNS.items()
        )
    )


def with_day(frame: DataFrame, seconds: str) -> DataFrame:
    """Add `day`, from epoch seconds, in UTC for any time zone of the session."""
    bounded = F.when(F.col(seconds).between(0, _LAST_SECOND), F.col(seconds))
    days = F.floor(bounded / 86400).cast("int")
    return frame.withColumn("day", F.date_add(F.lit("1970-01-01").cast("date"), days))


def activity_by_kind_and_day(stored: DataFrame, receipts: DataFrame) -> DataFrame:
    """day, kind, events, authors, bytes, deliveries (packets that paid for an event here), forwards
    (packets for others, which are counted under one kind), revenue."""
    by = ["day", "kind"]
    told = stored.groupBy(*by).agg(
        F.count(F.lit(1)).alias("events"),
        F.count_distinct("pubkey").alias("authors"),
        F.sum("size").alias("bytes"),
    )
    earned = receipts.groupBy(*by).agg(
        F.count_if(~F.col("is_forwarded")).alias("deliveries"),
        F.count_if("is_forwarded").alias("forwards"),
        F.sum("revenue").alias("revenue"),
    )
    joined = told.join(earned, by, "full")
    return joined.select(*by, *_COUNTS).fillna(0, list(_COUNTS)).orderBy(*by)


def authors_by_day(stored: DataFrame) -> DataFrame:
    """day, authors. Not the sum over kinds, because most authors write several kinds."""
    return stored.groupBy("day").agg(F.count_distinct("pubkey").alias("authors"))


def top_payers(receipts: DataFrame, top: int) -> DataFrame:
    """peer, packets, bytes, revenue: the peers that paid us most; on a tie by name."""
    by_peer = receipts.groupBy("peer").agg(
        F.count(F.lit(1)).alias("packets"),
        F.sum("size").alias("bytes"),
        F.sum("revenue").alias("revenue"),
    )
    return by_peer.orderBy(F.desc("revenue"), "peer").limit(top)


def _few_kinds(activity: DataFrame, most: int = 12) -> DataFrame:
    """The kinds with most events and revenue, and all other kinds as one."""
    weight = activity.groupBy("kind").agg(F.sum("events").alias("n"), F.sum("revenue").alias("r"))
    by_events = weight.orderBy(F.desc("n"), "kind").limit(most)
    by_revenue = weight.where("r > 0").orderBy(F.desc("r"), "kind").limit(most)
    named = by_events.union(by_revenue).select("kind").distinct().withColumn("named", F.lit(True))
    few = activity.join(named, "kind", "left").withColumn(
        "kind", F.when(F.col("named"), F.col("kind")).otherwise(OTHER)
    )
    return few.groupBy("day", "kind").agg(*_sums()).orderBy("day", "kind")


def _sums() -> list[Column]:
    return [F.sum(name).alias(name) for name in _COUNTS]


def _totals(activity: DataFrame, stored: DataFrame, receipts: DataFrame) -> Totals:
    (sums,) = activity.agg(*_sums()).drop("authors").collect()
    ((authors,),) = stored.agg(F.count_distinct("pubkey")).collect()
    ((payers,),) = receipts.agg(F.count_distinct("peer")).collect()
    return Totals(**{name: value or 0 for name, value in sums.asDict().items()},
                  authors=authors, payers=payers)  # fmt: skip


def main() -> None:
    """See README.md for the arguments."""
    import boto3

    from glue_jobs.glue import GlueRun

    run = GlueRun(
        ["NAME", "OUTPUT"],
        ["SOURCE", "LEDGER", "SOURCE_FORMAT", "EVENTS_TABLE_ARN", "LEDGER_TABLE_ARN", "EXPORT_TO",
         "UNIT", "DAYS"],
    )  # fmt: skip
    report = relay_report(
        read_events(run.spark, run.paths("SOURCE", "EVENTS_TABLE_ARN"), run.form),
        read_receipts(run.spark, run.paths("LEDGER", "LEDGER_TABLE_ARN"), run.form),
        int(time.time()),
        name=run.arguments["NAME"],
        unit=run.arguments.get("UNIT", "units"),
        days=run.number("DAYS", 30),
        aether=read_aether_events(run.spark, run.paths("SOURCE", "EVENTS_TABLE_ARN"), run.form),
    )
    folder = run.arguments["OUTPUT"].rstrip("/")
    report.write_parquet(folder)
    bucket, _, prefix = folder.removeprefix("s3://").partition("/")
    boto3.client("s3").put_object(
        Bucket=bucket,
        Key=f"{prefix}/report.html".lstrip("/"),
        Body=report.page.encode(),
        ContentType="text/html; charset=utf-8",
    )
    run.commit()


if __name__ == "__main__":
    main()
