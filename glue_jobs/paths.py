"""Cheapest paths from one or many sources over the peer graph, by rounds of relaxation.

After round k every label is the best path of at most k hops, by fee, then hops, then the path
itself. Appending the same edge to two paths does not change their order, so only the best label of
a node has to be kept. A label that changed in round k has exactly k hops, and the next round
extends only those. A path that returns to a node is worse than its own beginning.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glue_jobs.session import cut_lineage


def cheapest_paths(
    edges: DataFrame,
    sources: DataFrame,
    hop_limit: int,
    on_round: Callable[[int], None] = lambda _: None,
) -> DataFrame:
    """source, node, fee, hops, path (next hop to node), level (the fewest hops there are).

    `edges` (src, dst, fee) should be kept in memory and partitioned by src: a round then shuffles
    only its labels, never the graph.
    """
    reached = cut_lineage(first_hops(edges, sources))
    on_round(1)
    for hops in range(2, hop_limit + 1):
        frontier = reached.where(F.col("hops") == hops - 1)
        if frontier.isEmpty():
            break
        found = extended(frontier, edges)
        reached = cut_lineage(best_labels(reached.unionByName(found)))
        on_round(hops)
    return reached


def first_hops(edges: DataFrame, sources: DataFrame) -> DataFrame:
    """Paths to direct peers. There is no agent in between, so there is no fee."""
    one = F.lit(1).cast("int")
    return edges.join(sources, edges["src"] == sources["source"]).select(
        "source",
        F.col("dst").alias("node"),
        F.lit(0).cast("bigint").alias("fee"),
        one.alias("hops"),
        F.array("dst").alias("path"),
        one.alias("level"),
    )


def extended(frontier: DataFrame, edges: DataFrame) -> DataFrame:
    """Every label extended by one hop, if the label's node forwards (has a fee)."""
    onward = edges.where("fee IS NOT NULL").withColumnRenamed("fee", "hop_fee")
    joined = frontier.join(onward, frontier["node"] == onward["src"]).where("dst != source")
    hops = (F.col("hops") + 1).cast("int")
    return joined.select(
        "source",
        F.col("dst").alias("node"),
        (F.col("fee") + F.col("hop_fee")).alias("fee"),
        hops.alias("hops"),
        F.concat("path", F.array("dst")).alias("path"),
        hops.alias("level"),
    )


def best_labels(labels: DataFrame) -> DataFrame:
    """One label for each source and node. Every partition computes a minimum before the shuffle, so
    that a node with a million incoming edges sends one row from each partition."""
    best = labels.groupBy("source", "node").agg(
        F.min(F.struct("fee", "hops", "path")).alias("best"), F.min("level").alias("level")
    )
    return best.select("source", "node", "best.*", "level")
