"""The peer graph: the address and fee that each agent claims (10032), and the follow lists (3).

Inside the job a key is 32 bytes, and an agent is a number. Numbers follow the order of the keys, so
that comparing numbers, or paths of numbers, compares keys. An edge takes 24 bytes.
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
    """The events and fields that routing needs: three kinds, with follows as plain keys."""
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
    """pubkey, address, fee (null: the agent does not forward), refused (null: the claim is valid).

    The address is in a tag or, for agents of earlier versions, in the content's JSON.
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
    """The number in a tag: 0 if there is no such tag, null if it is not a plausible number."""
    number = whole_number(first_tag(tag))
    return F.when(first_tag(tag).isNull(), F.lit(0)).when(number <= _LARGEST, number)


def numbered_nodes(newest: DataFrame, claimed: DataFrame, sources: DataFrame) -> DataFrame:
    """node, pubkey; for agents with a valid claim also address and fee."""
    keys = newest.where(F.col("kind") != ROUTE_ANNOUNCEMENT).select("pubkey").union(sources)
    valid = claimed.where("refused IS NULL").drop("refused")
    # The partitions of a sorted frame are in order, and so are the numbers.
    ordered = keys.distinct().join(valid, "pubkey", "left").orderBy("pubkey")
    return cut_lineage(ordered.select(F.monotonically_increasing_id().alias("node"), "*"))


def peer_edges(newest: DataFrame, nodes: DataFrame) -> DataFrame:
    """src, dst, fee: one edge for each key that src follows and that claims an address.

    `fee` is the fee of src for forwarding. A hub with a million followers gives a million rows with
    one dst in the join below. The follows are the large side. The agents are the small side, which
    is broadcast or, if it is too large, split by AQE's skew join. The result is partitioned by src,
    where the length of a follow list limits the number of rows.
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
    """node, followers. Partitions add up before the shuffle, so a hub costs one row of each."""
    return edges.groupBy(F.col("dst").alias("node")).agg(F.count(F.lit(1)).alias("followers"))


def keys_frame(spark: SparkSession, keys: Sequence[str]) -> DataFrame:
    """A frame of keys that is made inside the plan: Spark then knows that it is small."""
    if any(not re.fullmatch("[0-9a-f]{64}", key) for key in keys):
        raise ValueError("expected sources to be public keys of 64 lowercase hexadecimal digits")
    listed = F.split(F.lit(",".join(sorted(set(keys)))), ",")
    return spark.range(1).select(F.explode(F.transform(listed, F.unhex)).alias("pubkey"))
