"""Routes that others announce (10033): `["route", address, fee, distance hint]`.

This module checks each route by itself. Later steps check that the source follows the announcer,
and who owns the address.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.events_source import whole_number
from glue_jobs.graph import ADDRESS, MAX_ADDRESS, ROUTE_ANNOUNCEMENT
from glue_jobs.rules import Options, Refusal


def announced_routes(newest: DataFrame, options: Options) -> DataFrame:
    """pubkey, address, fee, hops (from us to the address), refused (null: passed so far)."""
    events = newest.where(F.col("kind") == ROUTE_ANNOUNCEMENT)
    tags = events.select("pubkey", "created_at", F.posexplode("tags").alias("position", "tag"))
    routes = tags.where(_part(0) == "route").select(
        "pubkey", "created_at", "position",
        _part(1).alias("address"),
        whole_number(_part(2)).alias("fee"),
        _part(2).rlike(r"^[0-9]+\z").alias("fee_is_number"),
        hops_of_hint(_part(3), options.hop_limit).alias("hops"),
    )  # fmt: skip
    checked = routes.withColumn("refused", _refusal(options))
    return _within_number(checked, options).select("pubkey", "address", "fee", "hops", "refused")


def hops_of_hint(hint: Column, unknown: int) -> Column:
    """The number of hops from us, from an announcer's distance hint: `direct` is one hop after the
    announcer, `n-hop` is n. It only breaks ties. An unknown hint counts as far away."""
    number = whole_number(F.regexp_extract(hint, r"^([0-9]{1,4})-hop\z", 1))
    behind = F.when(hint == "direct", F.lit(1)).when(number >= 1, number)
    return F.coalesce(behind + 1, F.lit(unknown)).cast("int")


def _part(index: int) -> Column:
    return F.get(F.col("tag"), F.lit(index))


def _refusal(options: Options) -> Column:
    valid = F.col("address").rlike(ADDRESS) & (F.length("address") <= MAX_ADDRESS)
    valid = valid & F.col("fee_is_number")
    created = F.col("created_at")
    return (
        F.when(~F.coalesce(valid, F.lit(False)), Refusal.MALFORMED_ROUTE.value)
        .when(created < options.now - options.max_announcement_age, Refusal.STALE_ROUTE.value)
        .when(created > options.now + options.max_clock_skew, Refusal.FUTURE_ROUTE.value)
        .when(F.coalesce(F.col("fee") > options.max_fee, F.lit(True)), Refusal.ABSURD_FEE.value)
        .when(F.col("hops") > options.hop_limit, Refusal.FAR_ROUTE.value)
    )


def _within_number(routes: DataFrame, options: Options) -> DataFrame:
    """Keep a peer's first route to each address, and no more routes than a peer may announce."""
    passed = F.col("refused").isNull()
    said = Window.partitionBy("pubkey", passed, "address").orderBy("position")
    first = routes.withColumn(
        "refused",
        F.when(passed & (F.row_number().over(said) > 1), Refusal.DUPLICATE_ROUTE.value).otherwise(
            F.col("refused")
        ),
    )
    listed = Window.partitionBy("pubkey", passed).orderBy("position")
    above = F.row_number().over(listed) > options.max_routes_per_peer
    return first.withColumn(
        "refused",
        F.when(passed & above, Refusal.TOO_MANY_ROUTES.value).otherwise(F.col("refused")),
    )
