"""Trust equals networkx's personalised PageRank; credit follows it and stays within its bounds."""

import random

import networkx
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python  # needs no scipy
from pyspark.sql import SparkSession

from glue_jobs.events_source import Format, read_events
from glue_jobs.trust_scores import UNIT, TrustRules, credit_limits, trust_scores
from tests.glue.world import NOW, World, follows, key, write_lines

RULES = TrustRules(
    passed_on=50, iterations=25, tolerance=UNIT // 10**6, budget=1_000_000, cap=200_000
)


FRIENDS = [f"f{n}" for n in range(5)]
SYBILS = [f"sybil{n}" for n in range(40)]


def social_graph() -> networkx.DiGraph:
    """A real graph, made one-sided so that somebody follows nobody; a ring of strangers; and an
    army of keys that follow each other, of which one was followed by somebody who was fooled."""
    graph = networkx.DiGraph(networkx.karate_club_graph().edges())
    graph.remove_edges_from([edge for edge in list(graph.edges()) if sum(edge) % 3 == 0])
    graph.add_edges_from([(0, 100), (33, 0), (33, 1)])  # 100 has no events at all
    graph.add_edges_from((f"s{n}", f"s{(n + 1) % 5}") for n in range(5))
    graph.add_edges_from([(0, "friend"), (0, "fooled"), ("fooled", SYBILS[0])])
    graph.add_edges_from(("friend", each) for each in FRIENDS)
    graph.add_edges_from(("fooled", each) for each in FRIENDS[1:])
    rng = random.Random(1)
    graph.add_edges_from((each, other) for each in SYBILS for other in rng.sample(SYBILS, 10))
    graph.remove_edges_from(list(networkx.selfloop_edges(graph)))
    return graph


def events_of(graph: networkx.DiGraph) -> World:
    world = World("trust")
    for name in graph:
        if name != 100:
            world.agent(str(name), *(str(each) for each in graph[name]), str(name))  # and itself
    world.events.append(follows(key("stranger"), [world.key(name) for name in SYBILS]))
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


def test_credit_goes_to_followed_agents_within_bounds(scored: dict[str, tuple]) -> None:
    world, graph = World("trust"), social_graph()
    credit = {pubkey: limit for pubkey, (_, limit) in scored.items() if limit is not None}

    # 100 has no kind 10032 and is no agent; whom others follow, we do not peer with.
    assert set(credit) == {world.key(str(name)) for name in graph[0] if name != 100}
    assert 0 < sum(credit.values()) <= RULES.budget + len(credit)
    assert 0 < min(credit.values()) <= max(credit.values()) <= RULES.cap
    by_score = sorted((scored[pubkey][0], limit) for pubkey, limit in credit.items())
    assert [limit for _, limit in by_score] == sorted(credit.values()), "more trust, more credit"


def test_sybils_share_what_one_follow_is_worth(scored: dict[str, tuple]) -> None:
    world = World("trust")
    score = {name: scored.get(world.key(name), (0, 0))[0] for name in (*SYBILS, "friend", "fooled")}

    # All of them together: the one part in five that `fooled` passes on, however often it circles.
    together = sum(score[name] for name in SYBILS)
    assert 0 < together < score["fooled"] * 0.5 / 5 / (1 - 0.5) * 1.001
    assert score["friend"] > 10 * max(score[name] for name in SYBILS[1:])


def test_credit_is_capped_and_never_nothing(spark: SparkSession) -> None:
    scores = spark.sql(
        "SELECT * FROM VALUES ('a', 9000L), ('b', 990L), ('c', 9L), ('d', 1L), ('no agent', 5000L)"
        " AS t(pubkey, score)"
    )
    agents = spark.sql("SELECT * FROM VALUES ('a'), ('b'), ('c'), ('d'), ('b') AS t(pubkey)")
    rules = TrustRules(budget=1000, cap=500)

    limits = {row.pubkey: row.max_balance for row in credit_limits(scores, agents, rules).collect()}

    assert limits == {"a": 500, "b": 99, "c": 1, "d": 1, "no agent": None}
