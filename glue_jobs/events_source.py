"""Reads events from a DynamoDB export, from `farthing export`, or from Parquet.

An invalid line is marked and never stops the job. Spark runs in ANSI mode, so untrusted text goes
only through functions that return null for invalid input. Signatures were verified before.
"""

from collections.abc import Sequence
from enum import StrEnum

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from glue_jobs.session import partitions

EVENT_COLUMNS = {
    "id": "string",
    "pubkey": "string",
    "created_at": "bigint",
    "kind": "int",
    "tags": "array<array<string>>",
    "content": "string",
}
_EVENT = ", ".join(f"{name} {kind}" for name, kind in EVENT_COLUMNS.items())
_TEXT = "struct<S: string>"
_EVENT_ITEM = f"Item struct<pk: {_TEXT}, sk: {_TEXT}, j: {_TEXT}>"

_AETHER_SORT_KEY = "xe"
_AETHER_EVENT = "event_id string, pubkey string, created_at decimal(20, 0)"
_NANOSECONDS = 10**9

# `\z`, because `$` would let a newline through at the end.
HEX64 = r"^[0-9a-f]{64}\z"


class Format(StrEnum):
    DYNAMODB = "dynamodb"  # export to S3 in DynamoDB JSON: one item of the events table per line
    JSONL = "jsonl"  # one event per line
    PARQUET = "parquet"  # the event's fields as columns


def read_events(spark: SparkSession, paths: Sequence[str], form: Format) -> DataFrame:
    """The event columns, `size` in bytes of JSON, and `malformed` for lines that are no events."""
    if form is Format.PARQUET:
        return events_from_columns(spark.read.parquet(*paths))
    lines = spark.read.text(list(paths), lineSep="\n")
    if form is Format.DYNAMODB:
        lines = event_lines_of_items(lines)
    return events_from_lines(lines)


def read_aether_events(spark: SparkSession, paths: Sequence[str], form: Format) -> DataFrame:
    """Aether events from the same source, as far as they are counted: id, pubkey, created_at in
    seconds, size. A Parquet source has no Aether events."""
    if form is Format.PARQUET:
        return spark.createDataFrame([], "id string, pubkey string, created_at bigint, size int")
    lines = spark.read.text(list(paths), lineSep="\n")
    if form is Format.DYNAMODB:
        lines = event_lines_of_items(lines, _AETHER_SORT_KEY)
    parsed = lines.select(
        F.from_json("value", _AETHER_EVENT).alias("event"), F.octet_length("value").alias("size")
    )
    events = parsed.where(F.col("event.event_id").rlike(HEX64)).select(
        F.col("event.event_id").alias("id"),
        "event.pubkey",
        F.floor(F.col("event.created_at") / _NANOSECONDS).cast("bigint").alias("created_at"),
        "size",
    )
    return events.where(F.col("pubkey").rlike(HEX64) & F.col("created_at").isNotNull())


def event_lines_of_items(lines: DataFrame, sort_key: str = "e") -> DataFrame:
    """The event's JSON of each item. Items of addresses, tombstones and events of other formats are
    left out: they have other sort keys."""
    item = _filled(lines).select(F.from_json("value", _EVENT_ITEM)["Item"].alias("item"))
    holds_none = (F.col("item.sk.S") != sort_key) | F.col("item.j.S").isNull()
    without = F.col("item.pk.S").isNotNull() & F.coalesce(holds_none, F.lit(True))
    # A line that is not an item gives null, which counts as malformed.
    return item.where(~without).select(F.coalesce("item.j.S", F.lit("null")).alias("value"))


def events_from_lines(lines: DataFrame) -> DataFrame:
    """Lines with events of another format are left out. They do not count as malformed."""
    parsed = (
        _filled(lines)
        .select(F.from_json("value", f"{_EVENT}, event_id string").alias("event"), "value")
        .where(F.col("event.event_id").isNull() | F.col("event.id").isNotNull())
        .select(F.col("event").dropFields("event_id").alias("event"),
                F.octet_length("value").alias("size"))
    )  # fmt: skip
    return _marked(parsed.select("event.*", "size"))


def events_from_columns(columns: DataFrame) -> DataFrame:
    """Events from columns. Tags may also be JSON text, as some tools write them."""
    kinds = dict(columns.dtypes)
    tags = _column("tags", kinds)
    if kinds.get("tags") == "string":
        tags = F.from_json("tags", EVENT_COLUMNS["tags"])
    events = columns.select(
        *(_column(name, kinds) for name in EVENT_COLUMNS if name != "tags"), tags.alias("tags")
    )
    event = F.struct(*EVENT_COLUMNS)
    return _marked(events.select(*EVENT_COLUMNS, F.octet_length(F.to_json(event)).alias("size")))


def well_formed(events: DataFrame) -> DataFrame:
    return events.where(~F.col("malformed")).drop("malformed")


def newest_by_author(events: DataFrame) -> DataFrame:
    """One event for each author and kind: the newest; on a tie, the one of lowest id (NIP-01).

    Partitioned by author, so that later joins by author do not move the rows again.
    """
    events = events.repartition(partitions(events), "pubkey")
    newest_first = Window.partitionBy("pubkey", "kind").orderBy(F.desc("created_at"), F.asc("id"))
    ranked = events.withColumn("_rank", F.row_number().over(newest_first))
    return ranked.where("_rank = 1").drop("_rank")


def unexpired(newest: DataFrame, now: int) -> DataFrame:
    """The events that have not expired (NIP-40). An event that an expired one has replaced does not
    come back: so call this with the newest events of each author."""
    return newest.where(F.col("expires").isNull() | (F.col("expires") > now)).drop("expires")


def first_tag(name: str) -> Column:
    """The value of the first tag of this name; null if there is none."""
    named = F.filter("tags", lambda tag: F.get(tag, F.lit(0)) == name)
    return F.get(F.get(named, F.lit(0)), F.lit(1))


def whole_number(text: Column) -> Column:
    """Decimal digits as a number; null for a sign, a space, an exponent, or more than 18 digits."""
    return F.when(text.rlike(r"^[0-9]{1,18}\z"), text.try_cast("bigint"))


def _filled(lines: DataFrame) -> DataFrame:
    return lines.where(F.trim("value") != "")


def _column(name: str, kinds: dict[str, str]) -> Column:
    """A column by name. It is all null if it is missing, or if its type does not fit."""
    if name not in kinds or (name == "tags" and kinds[name] != EVENT_COLUMNS["tags"]):
        return F.lit(None).cast(EVENT_COLUMNS[name]).alias(name)
    return F.col(name).try_cast(EVENT_COLUMNS[name]).alias(name)


def _marked(events: DataFrame) -> DataFrame:
    is_event = (
        F.col("id").rlike(HEX64)
        & F.col("pubkey").rlike(HEX64)
        & (F.col("created_at") >= 0)
        & (F.col("kind") >= 0)
        & F.col("tags").isNotNull()
    )
    return events.withColumn("malformed", ~F.coalesce(is_event, F.lit(False)))
