"""Glue job: the routing table of an agent, from follow lists and the claims of agents.

`rebuild` is the job on any Spark session, and the command line runs it in local mode. Only `main`
uses Glue and AWS. poisoning.md describes what an attacker can do to the table.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from glue_jobs import routes as r
from glue_jobs.announcements import announced_routes
from glue_jobs.events_source import newest_by_author, read_events, unexpired, well_formed
from glue_jobs.generations import generation_name, publish_generation
from glue_jobs.graph import (
    claims,
    follower_counts,
    keys_frame,
    numbered_nodes,
    peer_edges,
    routing_events,
)
from glue_jobs.ownership import held_addresses
from glue_jobs.paths import cheapest_paths
from glue_jobs.rules import Options, Refusal, Report
from glue_jobs.session import cut_lineage

# Called with a stage's name, the number of steps done, and the number of all steps.
Progress = Callable[[str, int, int], None]


def rebuild(
    spark: SparkSession,
    source_paths: Sequence[str],
    sources: Sequence[str],
    options: Options,
    progress: Progress = lambda *_: None,
) -> tuple[DataFrame, Report]:
    """The routes of each source key, from events in files. See `rebuild_from_events`."""
    events = read_events(spark, source_paths, options.source_format)
    return rebuild_from_events(events, sources, options, progress)


def rebuild_from_events(
    events: DataFrame,
    sources: Sequence[str],
    options: Options,
    progress: Progress = lambda *_: None,
) -> tuple[DataFrame, Report]:
    """generation, source, prefix, owner, next_hop, fee, hops, path; and a report.

    A path goes from the next hop to the owner. The frame is computed when this returns.
    """
    spark, report = events.sparkSession, Report()
    total = options.hop_limit + 4
    with _kept() as keep:
        progress("reading events", 0, total)
        read = Observation()
        seen = _counted(events, read)
        newest = keep(unexpired(newest_by_author(routing_events(seen)), options.now))
        newest.count()
        report.events, report.malformed = read.get["events"], read.get["malformed"]

        progress("building the graph", 1, total)
        claimed = keep(claims(newest, options))
        nodes = numbered_nodes(newest, claimed, keys_frame(spark, sources))
        edges = keep(peer_edges(newest, nodes))
        report.edges = edges.count()
        nodes = cut_lineage(
            nodes.join(follower_counts(edges), "node", "left").fillna(0, ["followers"])
        )
        report.agents = nodes.where("address IS NOT NULL").count()
        starts = nodes.join(keys_frame(spark, sources), "pubkey", "left_semi")
        starts = starts.select(F.col("node").alias("source"))

        def on_round(hops: int) -> None:
            report.rounds = hops
            progress(f"paths of {hops} hops", 1 + hops, total)

        reached = cheapest_paths(edges, starts, options.hop_limit, on_round)

        progress("checking claims", options.hop_limit + 2, total)
        announcements = keep(_judged_announcements(newest, nodes, reached, options))
        good = announcements.where("refused IS NULL")
        announced = cut_lineage(r.heard_announcements(good, reached))
        held_or_not = keep(
            held_addresses(r.claims_seen(nodes, reached, announced, starts), options)
        )
        held = held_or_not.where("refused IS NULL AND owner != source")

        progress("choosing routes", options.hop_limit + 3, total)
        chosen = r.graph_offers(reached, held)
        if not announced.isEmpty():
            offers = cut_lineage(r.announced_offers(announced, held))
            chosen = r.cheapest_offers(chosen, offers, reached, edges, options.hop_limit)
        routes = cut_lineage(r.named_routes(chosen, nodes, options.generation))
        report.routes = routes.count()
        report.refused = _refusals(claimed, announcements, held_or_not)
        progress("done", total, total)
    return routes, report


@contextmanager
def _kept() -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Frames that are used more than once, kept until the work is done."""
    frames: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    try:
        yield keep
    finally:
        for frame in frames:
            frame.unpersist()


def _counted(events: DataFrame, read: Observation) -> DataFrame:
    """The well-formed events. They are counted during the same read of the source."""
    counted = events.observe(
        read,
        F.count(F.lit(1)).alias("lines"),
        F.count_if(~F.col("malformed")).alias("events"),
        F.count_if("malformed").alias("malformed"),
    )
    return well_formed(counted)


def _judged_announcements(
    newest: DataFrame, nodes: DataFrame, reached: DataFrame, options: Options
) -> DataFrame:
    """peer, address, fee, hops, refused; includes reasons that depend on events of other keys."""
    peers = reached.where("hops = 1").select("node").distinct()
    direct = peers.join(nodes, "node").select("pubkey", F.col("node").alias("peer"))
    known = nodes.where("address IS NOT NULL").select("address").distinct()
    judged = (
        announced_routes(newest, options)
        .join(direct, "pubkey", "left")
        .join(known.withColumn("is_claimed", F.lit(True)), "address", "left")
    )
    refused = (
        F.when(F.col("peer").isNull(), Refusal.NOT_FOLLOWED.value)
        .when(F.col("refused").isNotNull(), F.col("refused"))
        .when(F.col("is_claimed").isNull(), Refusal.UNCLAIMED_ROUTE.value)
    )
    return judged.select("peer", "address", "fee", "hops", refused.alias("refused"))


def _refusals(claimed: DataFrame, announcements: DataFrame, held: DataFrame) -> dict[str, int]:
    absurd = claimed.where("refused IS NULL AND fee IS NULL")
    refused = [
        claimed.select("refused"),
        absurd.select(F.lit(Refusal.ABSURD_FEE.value).alias("refused")),
        announcements.select("refused"),
        held.select("refused"),
    ]
    counts = reduce(DataFrame.unionByName, refused).where("refused IS NOT NULL")
    # One row for each reason, so the result is small.
    return {row["refused"]: row["count"] for row in counts.groupBy("refused").count().collect()}


def main() -> None:
    """See README.md for the arguments."""
    from glue_jobs.glue import GlueRun

    run = GlueRun(
        ["OWNER", "TABLE_PREFIX"],
        ["SOURCE", "SOURCE_FORMAT", "EVENTS_TABLE_ARN", "EXPORT_TO", "HOP_LIMIT", "MAX_FEE",
         "MAX_SHRINK_PERCENT", "FORCE"],
    )  # fmt: skip
    now = int(time.time())
    defaults = Options(now=now)
    options = Options(
        now=now,
        generation=generation_name(now),
        source_format=run.form,
        hop_limit=run.number("HOP_LIMIT", defaults.hop_limit),
        max_fee=run.number("MAX_FEE", defaults.max_fee),
    )
    paths = run.paths("SOURCE", "EVENTS_TABLE_ARN")
    routes, report = rebuild(run.spark, paths, [run.arguments["OWNER"]], options)
    print("\n".join(report.lines()))
    publish_generation(
        run.engine_maker(), routes, options.generation, report.routes, now,
        shrink_percent=run.number("MAX_SHRINK_PERCENT", 50),
        force=run.arguments.get("FORCE") == "1",
    )  # fmt: skip
    run.commit()


if __name__ == "__main__":
    main()
