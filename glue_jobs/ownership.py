"""The key that holds an address, from the view of one source.

If several keys claim the same address, or addresses of which one is a prefix of the other, the key
that is nearest to the source holds it: fewer hops, then more followers, then the lower key. The
other claims are refused. So a claim above or below an address takes nothing from a nearer key, and
no claim of a stranger removes an agent.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.rules import Options, Refusal
from glue_jobs.session import cut_lineage

_UNREACHED = 2**31 - 1


def held_addresses(claimed: DataFrame, options: Options) -> DataFrame:
    """From source, owner, address, level (null: not in the graph), followers: source, owner,
    address, level and `refused`, which is null if the owner holds the address.

    Two steps are enough. The first refuses prefixes with a nearer key below them. Each remaining
    prefix is nearer than all keys below it, and the second step refuses those keys.
    """
    ranked = claimed.withColumn("rank", _rank())
    same = Window.partitionBy("source", "address")
    contested = cut_lineage(ranked.withColumn("nearest", F.min("rank").over(same)))
    losers = contested.where("rank != nearest")
    return _refused(losers, Refusal.FOREIGN_ADDRESS).unionByName(
        _without_nested(contested.where("rank = nearest"), options)
    )


def _without_nested(holders: DataFrame, options: Options) -> DataFrame:
    above = holders.select(
        "source", "owner", "rank", F.explode(proper_prefixes("address", options)).alias("prefix")
    )
    nearest_below = above.groupBy("source", "prefix").agg(F.min("rank").alias("below"))
    prefixes = holders.join(
        nearest_below.withColumnRenamed("prefix", "address"), ["source", "address"], "left"
    )
    is_shadowing = F.coalesce(F.col("below") < F.col("rank"), F.lit(False))
    left = prefixes.where(~is_shadowing)
    covers = left.where("below IS NOT NULL").select("source", F.col("address").alias("prefix"))
    covered = above.join(covers, ["source", "prefix"]).select("source", "owner").distinct()
    # One pass for both: a prefix that is refused for shadowing keeps this reason.
    covered = covered.withColumn("is_covered", F.lit(True))
    judged = prefixes.join(covered, ["source", "owner"], "left")
    refused = F.when(is_shadowing, Refusal.SHADOWING.value).when(
        F.col("is_covered"), Refusal.SHADOWED.value
    )
    return judged.select("source", "owner", "address", "level", refused.alias("refused"))


def proper_prefixes(address: str, options: Options) -> Column:
    """The prefixes that could be claimed; shorter ones are refused. Null if there are none."""
    segments = F.split(address, r"\.")
    lengths = F.sequence(F.lit(options.min_segments), F.size(segments) - 1)
    prefixes = F.transform(
        lengths, lambda length: F.array_join(F.slice(segments, F.lit(1), length), ".")
    )
    return F.when(F.size(segments) > options.min_segments, prefixes)


def _rank() -> Column:
    return F.struct(
        F.coalesce("level", F.lit(_UNREACHED)).alias("level"),
        (-F.coalesce("followers", F.lit(0))).alias("fewer"),
        F.col("owner").alias("key"),
    )


def _refused(frame: DataFrame, why: Refusal) -> DataFrame:
    return frame.select("source", "owner", "address", "level", F.lit(why.value).alias("refused"))
