"""Trust equals networkx's personalised PageRank; credit follows it and stays within its bounds."""

import random
from pathlib import Path

import networkx
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python  # needs no scipy
from pyspark.sql import DataFrame, SparkSession

from glue_jobs.events_source import Format, read_events
from glue_jobs.trust_scores import UNIT, TrustRules, credit_limits, trust_scores
from tests.glue.world import NOW, World, follows, key, write_lines

RULES = TrustRules(
    passed_on=50, iterations=25, tolerance=UNIT // 10**6, budget=1_000_000, cap=200_000, least=10
)


def social_graph() -> networkx.DiGraph:
    """A real graph, made one-sided so that somebody follows nobody; and a ring of strangers."""
    graph = networkx.DiGraph(networkx.karate_club_graph().edges())
    graph.remove_edges_from([edge for edge in list(graph.edges()) if sum(edge) % 3 == 0])
    graph.add_edges_from([(0, 100), (33, 0), (33, 1)])  # 100 has no events at all
    graph.add_edges_from((f"s{n}", f"s{(n + 1) % 5}") for n in range(5))
    return graph


def events_of(graph: networkx.DiGraph) -> World:
    world = World("trust")
    for name in graph:
        if name != 100:
            world.agent(str(name), *(str(each) for each in graph[name]), str(name))  # and itself
    return world


@pytest.fixture(scope="module")
def scored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple]:
    world = events_of(social_graph())
    path = write_lines(tmp_path_factory.mktemp("trust") / "events.jsonl", world.events)
    events = read_events(spark, [path], Format.JSONL)
    frame = trust_scores(events, world.key("0"), NOW, RULES)
    return {row.pubkey: (row.score, row.max_balance) for row in frame.collect()}


def test_scores_equal_personalised_pagerank(scored: dict[str, tuple]) -> None:
    world, graph = World("trust"), social_graph()
    expected = _pagerank_python(graph, alpha=0.5, personalization={0: 1}, tol=1e-12, max_iter=500)

    found = {name: scored.get(world.key(str(name)), (0, 0))[0] / UNIT for name in graph}

    del expected[0], found[0]  # the owner is not scored
    assert found == pytest.approx(expected, abs=2e-6)
    assert found["s0"] == 0 and found[100] > 0


def test_credit_follows_trust_within_bounds(scored: dict[str, tuple]) -> None:
    world = World("trust")
    credit = {pubkey: limit for pubkey, (_, limit) in scored.items()}

    assert credit[world.key("100")] == 0, "no agent: it has no kind 10032"
    assert 0 < sum(credit.values()) <= RULES.budget
    assert max(credit.values()) <= RULES.cap
    assert not {limit for limit in credit.values() if 0 < limit < RULES.least}
    by_score = sorted(
        (score, limit) for key, (score, limit) in scored.items() if key != world.key("100")
    )
    assert [limit for _, limit in by_score] == sorted(limit for _, limit in by_score)


def scores_frame(spark: SparkSession, scores: dict[str, int]) -> DataFrame:
    return spark.createDataFrame(list(scores.items()), "pubkey string, score bigint")


def test_credit_is_capped_and_what_is_tiny_is_nothing(spark: SparkSession) -> None:
    scores = scores_frame(spark, {"a": 900, "b": 99, "c": 1, "no agent": 5000})
    agents = spark.createDataFrame([("a",), ("b",), ("c",), ("b",)], "pubkey string")
    rules = TrustRules(budget=1000, cap=500, least=10)

    limits = {row.pubkey: row.max_balance for row in credit_limits(scores, agents, rules).collect()}

    assert limits == {"a": 500, "b": 99, "c": 0, "no agent": 0}


def test_sybils_share_what_one_follow_is_worth(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(1)
    world = World("sybil")
    owner = world.agent("owner", "friend", "fooled")
    friends = [f"f{n}" for n in range(5)]
    world.agent("friend", *friends)
    sybils = [f"s{n}" for n in range(40)]
    world.agent("fooled", "s0", *friends[1:])
    for name in friends:
        world.agent(name)
    for name in sybils:
        world.agent(name, *rng.sample(sybils, 10))
    world.events.append(follows(key("stranger"), [world.key(name) for name in sybils]))
    path = write_lines(tmp_path / "events.jsonl", world.events)
    events = read_events(spark, [path], Format.JSONL)

    frame = trust_scores(events, owner, NOW, TrustRules(iterations=8))

    score = {row.pubkey: row.score for row in frame.collect()}
    # All of them together: the one part in five that `fooled` passes on, however often it circles.
    together = sum(score.get(world.key(name), 0) for name in sybils)
    assert together < score[world.key("fooled")] * 0.85 / 5 / (1 - 0.85) * 1.001
    assert score[world.key("friend")] > 10 * max(score[world.key(name)] for name in sybils[1:])
