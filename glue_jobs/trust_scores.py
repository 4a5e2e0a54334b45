"""Glue job: the owner's trust in other keys, from the follow graph, and the credit of each.

Trust is personalised PageRank: it starts at the owner. Each agent passes a share of its trust to
the keys that it follows, in equal parts, and the rest goes back to the owner. Keys that follow
nobody pass all of it back. So a thousand keys that follow each other score nothing until a trusted
key follows one of them, and then they share the trust of that one follow.

Scores are whole numbers out of `UNIT`. Whole numbers add up to the same in any order, so a rerun
gives exactly the same scores. What rounding leaves goes to the owner.

Credit (`max_balance`) goes to agents that the owner follows and that have a kind 10032, because
only those become peers:

    max_balance = max(1, min(cap, budget x score / scores of all of them))

For any graph, all agents together have at most `budget` plus one unit each, and none has more than
`cap`. The limit is never 0, because a peer with 0 would have to pay in advance.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from glue_jobs.events_source import newest_by_author, read_events, unexpired, well_formed
from glue_jobs.graph import FOLLOWS, claims, keys_frame, routing_events
from glue_jobs.rules import Options
from glue_jobs.session import cut_lineage, partitions

UNIT = 10**15
_LOOK = 5  # rounds between two checks of how much the scores still change


@dataclass(frozen=True, kw_only=True)
class TrustRules:
    # Per cent of an agent's trust that it passes to the keys that it follows. With half, the
    # owner's own follows count most, and the scores settle in a dozen rounds.
    passed_on: int = 50
    iterations: int = 30
    tolerance: int = UNIT // 10**4  # stop when the changes of a round are below this
    budget: int = 10**11  # credit in all, in the ledger's units
    cap: int = 10**10  # for one agent

    def __post_init__(self) -> None:
        if not 0 < self.passed_on < 100:
            raise ValueError(f"passed_on: expected 1 to 99 per cent, got {self.passed_on}")
        if not 0 < self.cap <= self.budget < 10**18:
            raise ValueError(
                f"cap: expected above 0 and at most the budget of {self.budget}, got {self.cap}"
            )


def trust_scores(
    events: DataFrame,
    owner: str,
    now: int,
    rules: TrustRules | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> DataFrame:
    """pubkey, score, max_balance (null where no credit is due), for every key but the owner that
    has a score."""
    rules = rules or TrustRules()
    newest = unexpired(newest_by_author(routing_events(well_formed(events))), now)
    newest = newest.persist(StorageLevel.MEMORY_AND_DISK)
    start = keys_frame(events.sparkSession, [owner])
    shares = follow_shares(newest).persist(StorageLevel.MEMORY_AND_DISK)
    scores = personalised_pagerank(shares, owner, rules, progress)
    others = scores.join(start, "pubkey", "left_anti")
    limits = cut_lineage(
        credit_limits(others, _followed_agents(newest, shares, start, now), rules).select(
            F.lower(F.hex("pubkey")).alias("pubkey"), "score", "max_balance"
        )
    )
    shares.unpersist()
    newest.unpersist()
    return limits


def credit_of(scores: DataFrame) -> dict[str, int]:
    """Limits by key. There are at most as many as the owner's follow list has keys."""
    rows = scores.where("max_balance IS NOT NULL").select("pubkey", "max_balance").collect()
    return {row["pubkey"]: row["max_balance"] for row in rows}


def _followed_agents(newest: DataFrame, shares: DataFrame, owner: DataFrame, now: int) -> DataFrame:
    followed = shares.join(owner, "pubkey", "left_semi").select(F.col("followed").alias("pubkey"))
    valid = claims(newest, Options(now=now)).where("refused IS NULL")
    return valid.select("pubkey").join(followed, "pubkey", "left_semi")


def follow_shares(newest: DataFrame) -> DataFrame:
    """pubkey, followed, parts: each follow, and the number of keys that the follower follows."""
    itself = F.col("pubkey")
    lists = newest.where(F.col("kind") == FOLLOWS).select(
        "pubkey", F.filter("followed", lambda key: key != itself).alias("followed")
    )
    return lists.select(
        "pubkey", F.explode("followed").alias("followed"), F.size("followed").alias("parts")
    ).repartition(partitions(newest), "pubkey")


def personalised_pagerank(
    shares: DataFrame,
    owner: str,
    rules: TrustRules,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> DataFrame:
    """pubkey, score. At the start, the owner has all trust.

    The graph is partitioned once. A round moves only scores, which each partition adds up first, so
    that a hub costs no more than other keys.
    """
    nothing = keys_frame(shares.sparkSession, [owner]).withColumn("score", F.lit(0).cast("bigint"))
    scores = _with_rest(nothing, 0, owner)
    for iteration in range(1, rules.iterations + 1):
        passed_on = _passed_on(scores, shares, rules).unionByName(nothing)
        received = passed_on.groupBy("pubkey").agg(F.sum("score").alias("score"))
        added_up = Observation()
        received = cut_lineage(received.observe(added_up, F.sum("score").alias("total")))
        following = _with_rest(received, added_up.get["total"], owner)
        progress("passing trust on", iteration, rules.iterations)
        is_settled = iteration % _LOOK == 0 and _change(scores, following) <= rules.tolerance
        scores = following
        if is_settled:
            break
    return scores.where("score > 0")


def credit_limits(scores: DataFrame, agents: DataFrame, rules: TrustRules) -> DataFrame:
    """pubkey, score, max_balance; for keys that are not among the agents, null."""
    is_agent = agents.select("pubkey").distinct().withColumn("is_agent", F.lit(True))
    marked = scores.join(is_agent, "pubkey", "left")
    total = marked.where("is_agent").agg(F.sum("score").alias("total"))
    credit = _share(F.col("score"), F.lit(rules.budget), F.col("total"))
    capped = F.least(credit, F.lit(rules.cap).cast("bigint"))
    limit = F.when(F.col("is_agent"), F.greatest(capped, F.lit(1).cast("bigint")))
    joined = marked.crossJoin(F.broadcast(total))  # one row
    return joined.select("pubkey", "score", limit.alias("max_balance"))


def _passed_on(scores: DataFrame, shares: DataFrame, rules: TrustRules) -> DataFrame:
    part = F.expr(f"score * {rules.passed_on} div 100 div parts")
    return shares.join(scores, "pubkey").select(
        F.col("followed").alias("pubkey"), part.alias("score")
    )


def _with_rest(received: DataFrame, total: int, owner: str) -> DataFrame:
    """Add all trust that nobody received to the owner: the shares that go back, and what rounding
    left."""
    is_owner = F.col("pubkey") == F.unhex(F.lit(owner))
    return received.withColumn(
        "score", F.col("score") + F.when(is_owner, UNIT - total).otherwise(0)
    )


def _change(before: DataFrame, after: DataFrame) -> int:
    joined = before.withColumnRenamed("score", "before").join(after, "pubkey", "full")
    change = F.abs(F.coalesce("score", F.lit(0)) - F.coalesce("before", F.lit(0)))
    moved: int | None = _only(joined.agg(F.sum(change).alias("moved")))[0]
    return moved or 0


def _only(one: DataFrame) -> Row:
    """The row of an aggregate: there is always one."""
    (row,) = one.collect()
    return row


def _share(part: Column, of: Column, whole: Column) -> Column:
    """part x of / whole, rounded down, without overflow on the way."""
    product = part.cast("decimal(19,0)") * of.cast("decimal(19,0)")
    return F.floor(product / F.greatest(whole, F.lit(1)).cast("decimal(19,0)")).cast("bigint")


def main() -> None:
    """See README.md for the arguments."""
    from farthing.store.credits import CreditLimits
    from glue_jobs.glue import GlueRun

    run = GlueRun(
        ["OWNER", "TABLE_PREFIX"],
        ["SOURCE", "SOURCE_FORMAT", "EVENTS_TABLE_ARN", "EXPORT_TO", "BUDGET", "CAP", "OUTPUT"],
    )
    defaults = TrustRules()
    rules = TrustRules(
        budget=run.number("BUDGET", defaults.budget), cap=run.number("CAP", defaults.cap)
    )
    events = read_events(run.spark, run.paths("SOURCE", "EVENTS_TABLE_ARN"), run.form)
    scores = trust_scores(events, run.arguments["OWNER"], int(time.time()), rules)
    CreditLimits(run.engine_maker()()).replace(credit_of(scores))
    if "OUTPUT" in run.arguments:
        scores.write.mode("overwrite").parquet(run.arguments["OUTPUT"])
    run.commit()


if __name__ == "__main__":
    main()
