"""The peer graph: who claims which address at what fee (10032), and who follows whom (3).

Inside the job a key is 32 bytes, and an agent is a number. Numbers are given in the order of the
keys, so that comparing numbers, or paths of numbers, compares keys; an edge is 24 bytes then.
"""

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from glue_jobs.events_source import HEX64, first_tag, whole_number
from glue_jobs.rules import Options, Refusal
from glue_jobs.session import cut_lineage, partitions

FOLLOWS = 3
PEER_INFO = 10032
ROUTE_ANNOUNCEMENT = 10033

ADDRESS = r"^(g|private|example|peer|self|test[1-3]?|local)([.][a-zA-Z0-9_~-]+)+\z"
MAX_ADDRESS = 1023
_LARGEST = 10**12  # its product with an amount still fits


def routing_events(events: DataFrame) -> DataFrame:
    """Only what routing reads: the three kinds, follows as plain keys, and no text beside them."""
    kind = F.col("kind")
    is_follow = F.filter(
        "tags", lambda tag: (F.get(tag, F.lit(0)) == "p") & F.get(tag, F.lit(1)).rlike(HEX64)
    )
    followed = F.array_distinct(F.transform(is_follow, lambda tag: F.get(tag, F.lit(1))))
    followed = F.transform(followed, F.unhex)
    return events.where(kind.isin(FOLLOWS, PEER_INFO, ROUTE_ANNOUNCEMENT)).select(
        "id", F.unhex("pubkey").alias("pubkey"), "created_at", "kind",
        F.when(kind == FOLLOWS, followed).alias("followed"),
        F.when(kind != FOLLOWS, F.col("tags")).alias("tags"),
        F.when(kind == PEER_INFO, F.col("content")).alias("content"),
        whole_number(first_tag("expiration")).alias("expires"),
    )  # fmt: skip


def claims(newest: DataFrame, options: Options) -> DataFrame:
    """pubkey, address, fee (null: nothing goes through it), refused (null: the claim is valid).

    The address stands in a tag, or, as deployed agents have it, in the content's JSON.
    """
    in_content = F.from_json("content", "ilpAddress string")["ilpAddress"]
    share = stated_number("fee_ppm") * options.typical_amount / 1_000_000
    fee = stated_number("fee") + F.floor(share).cast("bigint")
    stated = newest.where(F.col("kind") == PEER_INFO).select(
        "pubkey",
        F.coalesce(first_tag("ilp_address"), in_content).alias("address"),
        F.when(fee <= options.max_fee, fee).cast("bigint").alias("fee"),
    )
    valid = F.col("address").rlike(ADDRESS) & (F.length("address") <= MAX_ADDRESS)
    segments = F.size(F.split("address", r"\."))
    refused = (
        F.when(~F.coalesce(valid, F.lit(False)), Refusal.NO_ADDRESS.value)
        .when(F.split("address", r"\.")[0].isin(*options.unroutable), Refusal.UNROUTABLE.value)
        .when(segments < options.min_segments, Refusal.SHORT_PREFIX.value)
        .when(segments > options.max_segments, Refusal.DEEP_ADDRESS.value)
    )
    return stated.withColumn("refused", refused)


def stated_number(tag: str) -> Column:
    """0 where nothing is stated; null where it is no number that anybody would mean."""
    number = whole_number(first_tag(tag))
    return F.when(first_tag(tag).isNull(), F.lit(0)).when(number <= _LARGEST, number)


def numbered_nodes(newest: DataFrame, claimed: DataFrame, sources: DataFrame) -> DataFrame:
    """node, pubkey, and of those with a valid claim address and fee."""
    keys = newest.where(F.col("kind") != ROUTE_ANNOUNCEMENT).select("pubkey").union(sources)
    valid = claimed.where("refused IS NULL").drop("refused")
    # A sorted frame's partitions are in order, and so are the numbers given along them.
    ordered = keys.distinct().join(valid, "pubkey", "left").orderBy("pubkey")
    return cut_lineage(ordered.select(F.monotonically_increasing_id().alias("node"), "*"))


def peer_edges(newest: DataFrame, nodes: DataFrame) -> DataFrame:
    """src, dst, fee: one edge for each key that src follows and that claims an address.

    `fee` is what src takes for forwarding. A hub's million followers are a million rows with one
    dst in the join below. They are the large side; the agents are the small one, broadcast or, past
    that size, split by AQE's skew join. What comes out is partitioned by src, where a row count is
    bounded by what fits into one follow list.
    """
    # Hashing the small side spares sorting the large one.
    authors = nodes.select("pubkey", F.col("node").alias("src"), "fee")
    agents = nodes.where("address IS NOT NULL").select("pubkey", F.col("node").alias("dst"))
    follows = newest.where(F.col("kind") == FOLLOWS).select("pubkey", "followed")
    outgoing = follows.join(authors, "pubkey").select(
        "src", "fee", F.explode("followed").alias("pubkey")
    )
    edges = (
        outgoing.join(agents.hint("shuffle_hash"), "pubkey")
        .where("src != dst")
        .select("src", "dst", "fee")
    )
    return edges.repartition(partitions(nodes), "src")


def follower_counts(edges: DataFrame) -> DataFrame:
    """node, followers. Sums are formed before the shuffle, so a hub costs a row a partition."""
    return edges.groupBy(F.col("dst").alias("node")).agg(F.count(F.lit(1)).alias("followers"))


def keys_frame(spark: SparkSession, keys: Sequence[str]) -> DataFrame:
    """Made inside the plan, so that Spark knows how few they are and sends them along."""
    if any(not re.fullmatch("[0-9a-f]{64}", key) for key in keys):
        raise ValueError("a source is a public key of 64 lowercase hexadecimal digits")
    listed = F.split(F.lit(",".join(sorted(set(keys)))), ",")
    return spark.range(1).select(F.explode(F.transform(listed, F.unhex)).alias("pubkey"))
