"""From paths and announcements to routes: the holder of an address, and the cheapest way there.

A path of the graph costs the fees that the agents on it claim. If a direct peer has announced an
address, the announced fee replaces the graph's fee for the way through this peer to that address,
whether it is lower or higher.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glue_jobs.paths import best_labels, extended

_OFFER = ("source", "owner", "fee", "hops", "path")


def claims_seen(
    nodes: DataFrame, reached: DataFrame, announced: DataFrame, sources: DataFrame
) -> DataFrame:
    """source, owner, address, level, followers: the claims among which a source has to decide.

    The source's own claim is at level 0. Of the keys that the graph does not reach, only the key
    that would win is included for each announced address. So a thousand keys that claim an address
    and a thousand peers that announce it do not make a million rows.
    """
    agents = nodes.where("address IS NOT NULL").select(
        F.col("node").alias("owner"), "address", "followers"
    )
    own = sources.select("source", F.col("source").alias("owner"), F.lit(0).alias("level"))
    in_graph = reached.select("source", F.col("node").alias("owner"), "level")
    likely = agents.groupBy("address").agg(
        F.min(F.struct(-F.col("followers"), "owner"))["owner"].alias("owner")
    )
    named = announced.select("source", "address").distinct().join(likely, "address")
    named = named.select("source", "owner", F.lit(None).cast("int").alias("level"))
    seen = own.unionByName(in_graph).unionByName(named)
    nearest = seen.groupBy("source", "owner").agg(F.min("level").alias("level"))
    return nearest.join(agents, "owner")


def heard_announcements(announcements: DataFrame, reached: DataFrame) -> DataFrame:
    """source, peer, address, fee, hops: announcements of keys that the source follows."""
    peers = reached.where("hops = 1").select("source", F.col("node").alias("peer"))
    return announcements.select("peer", "address", "fee", "hops").join(peers, "peer")


def graph_offers(reached: DataFrame, held: DataFrame) -> DataFrame:
    """The cheapest path to every address that its owner holds."""
    offers = reached.withColumnRenamed("node", "owner").join(
        held.select("source", "owner", "address"), ["source", "owner"]
    )
    return offers.select(*_OFFER, "address")


def announced_offers(announced: DataFrame, held: DataFrame) -> DataFrame:
    """Announced ways of direct peers to other agents. Of a path, only both ends are known."""
    offers = announced.join(held.select("source", "address", "owner"), ["source", "address"])
    return offers.where("owner != peer AND owner != source").select(
        "source", "owner", "fee", "hops", F.array("peer", "owner").alias("path"), "address"
    )


def cheapest_offers(
    graph: DataFrame, announced: DataFrame, reached: DataFrame, edges: DataFrame, hop_limit: int
) -> DataFrame:
    """source, owner, address, fee, hops, path: one for each, by fee, then hops, then path."""
    said = announced.select("source", "owner", F.col("path")[0].alias("next"))
    by_next = graph.withColumn("next", F.col("path")[0])
    words = ["source", "owner", "next"]
    superseded = by_next.join(said, words, "left_semi").drop("next")
    standing = by_next.join(said, words, "left_anti").drop("next")
    others = ways_around(superseded, said, reached, edges, hop_limit)
    offers = standing.unionByName(announced).unionByName(others)
    best = offers.groupBy("source", "owner", "address").agg(
        F.min(F.struct("fee", "hops", "path")).alias("best")
    )
    return best.select("source", "owner", "address", "best.*")


def ways_around(
    superseded: DataFrame, said: DataFrame, reached: DataFrame, edges: DataFrame, hop_limit: int
) -> DataFrame:
    """The next best path of the graph, if the next hop of the best one has announced another fee.

    Otherwise a peer could win the path to an address by claiming a low fee, and then announce the
    highest fee for it without competition. The path to each agent before the address is that
    agent's best path; only the last hop is chosen again.
    """
    wanted = superseded.select("source", "owner", "address")
    last = edges.join(
        wanted.select("owner").distinct(), F.col("dst") == F.col("owner"), "left_semi"
    )
    found = extended(reached.where(F.col("hops") < hop_limit), last)
    found = found.withColumnRenamed("node", "owner").join(wanted, ["source", "owner"])
    is_simple = F.array_position("path", F.col("owner")) == F.size("path")
    found = found.where(is_simple).withColumn("next", F.col("path")[0])
    silent = found.join(said, ["source", "owner", "next"], "left_anti")
    labels = silent.select(
        "source", F.col("owner").alias("node"), "fee", "hops", "path", F.col("hops").alias("level")
    )
    best = best_labels(labels).withColumnRenamed("node", "owner").drop("level")
    return best.join(wanted, ["source", "owner"]).select(*_OFFER, "address")


def named_routes(routes: DataFrame, nodes: DataFrame, generation: str) -> DataFrame:
    """The rows of the routes table, with keys instead of numbers."""
    names = nodes.select("node", F.lower(F.hex("pubkey")).alias("pubkey"))
    steps = routes.select(
        "source", "owner", "address", "fee", "hops", F.posexplode("path").alias("at", "node")
    )
    named = (
        steps.join(names, "node")
        .groupBy("source", "owner", "address", "fee", "hops")
        .agg(F.array_sort(F.collect_list(F.struct("at", "pubkey")))["pubkey"].alias("path"))
    )
    sources = names.select(F.col("node").alias("source"), F.col("pubkey").alias("source_key"))
    return named.join(sources, "source").select(
        F.lit(generation).alias("generation"),
        F.col("source_key").alias("source"),
        F.col("address").alias("prefix"),
        F.col("path")[F.size("path") - 1].alias("owner"),
        F.col("path")[0].alias("next_hop"),
        "fee", "hops", "path",
    )  # fmt: skip
