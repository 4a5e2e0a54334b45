"""The simulation of hop limits finds what trying every path finds, and the same in every run."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.bench import route_limits
from tests.bench.route_limits import (
    HOP_LIMITS,
    MEAN_FOLLOWS,
    NO_LIMIT,
    UNREACHED,
    FollowGraph,
    chart,
    cheapest_paths,
    follow_graph,
    reach_by_hop_limit,
    route_bytes,
    table,
)

AGENTS = 6
GRAPHS = st.builds(
    FollowGraph,
    st.lists(
        st.lists(st.integers(0, AGENTS - 1), unique=True), min_size=AGENTS, max_size=AGENTS
    ).map(lambda rows: [[to for to in row if to != at] for at, row in enumerate(rows)]),
    st.lists(st.integers(0, 9), min_size=AGENTS, max_size=AGENTS),
)


def every_path(graph: FollowGraph, path: tuple[int, ...], most: int) -> Iterator[tuple[int, ...]]:
    if len(path) > 1:
        yield path
    if len(path) <= most:
        for followed in graph.follows[path[-1]]:
            if followed not in path:
                yield from every_path(graph, (*path, followed), most)


def naive(graph: FollowGraph, source: int, most: int) -> dict[int, tuple[int, int]]:
    """Agent: the least fee, and the fewest hops at that fee."""
    best: dict[int, tuple[int, int]] = {}
    for path in every_path(graph, (source,), most):
        found = sum(graph.fees[agent] for agent in path[1:-1]), len(path) - 1
        best[path[-1]] = min(found, best.get(path[-1], found))
    return best


# 4 is reached cheaper in the round in which it is extended: 5 must not profit from that yet.
CHEAPER_MEANWHILE = FollowGraph([[1, 2], [3], [4], [4], [5], []], [0, 0, 9, 0, 0, 0])


@settings(max_examples=60)
@given(GRAPHS, st.integers(0, AGENTS - 1))
@example(CHEAPER_MEANWHILE, 0)
def test_each_round_has_the_cheapest_paths_of_so_many_hops(graph: FollowGraph, source: int) -> None:
    for hops, labels in enumerate(cheapest_paths(graph, source, AGENTS), 1):
        reached = {
            agent: (labels.fees[agent], labels.hops[agent])
            for agent in range(AGENTS)
            if agent != source and labels.fees[agent] != UNREACHED
        }
        assert reached == naive(graph, source, hops)


def test_figures_of_a_graph_that_can_be_done_by_hand() -> None:
    """0 → 1 → 2 → 3, and a dear short cut 0 → 4 → 3; nobody follows 5."""
    graph = FollowGraph([[1, 4], [2], [3], [], [3], [0]], [0, 10, 20, 0, 70, 0])

    reaches = reach_by_hop_limit(graph, [0])

    assert [reaches[limit].routes for limit in (1, 2, 3)] == [[2], [4], [4]]
    assert reaches[2].fees == {0: 2, 10: 1, 70: 1}
    assert reaches[3].fees == {0: 2, 10: 1, 30: 1}
    assert reaches[3].hops == {1: 2, 2: 1, 3: 1}
    assert (reaches[3].fee_at(0.5), reaches[3].fee_at(0.75), reaches[3].fee_at(1)) == (0, 10, 30)
    assert reaches[NO_LIMIT].percent == 80
    assert reaches[3].table_bytes == 2 * route_bytes(1) + route_bytes(2) + route_bytes(3)


def test_a_route_grows_by_a_key_with_each_hop() -> None:
    assert route_bytes(2) - route_bytes(1) == route_bytes(6) - route_bytes(5)
    assert route_bytes(2) - route_bytes(1) >= 64


def test_a_graph_is_a_power_law_without_loops() -> None:
    graph = follow_graph(2000, 10, seed=1)
    followers = sorted(
        (sum(agent in set(row) for row in graph.follows) for agent in range(0, 2000, 20)),
        reverse=True,
    )

    assert all(agent not in followed for agent, followed in enumerate(graph.follows))
    assert all(len(set(followed)) == len(followed) for followed in graph.follows)
    assert 8 <= sum(map(len, graph.follows)) / 2000 <= 14
    assert followers[0] > 5 * followers[50]


@pytest.fixture(scope="module")
def found() -> dict:
    return {
        mean: reach_by_hop_limit(follow_graph(300, mean, seed=1), range(5)) for mean in MEAN_FOLLOWS
    }


def test_the_same_seed_gives_the_same_table_and_chart(found: dict) -> None:
    again = {
        mean: reach_by_hop_limit(follow_graph(300, mean, seed=1), range(5)) for mean in MEAN_FOLLOWS
    }
    assert [table(each) for each in again.values()] == [table(each) for each in found.values()]
    assert chart(again) == chart(found)
    assert follow_graph(300, 10, seed=2) != follow_graph(300, 10, seed=1)


def test_more_hops_reach_no_fewer_agents(found: dict) -> None:
    for reaches in found.values():
        routes = [reaches[limit].mean_routes for limit in (*HOP_LIMITS, NO_LIMIT)]
        assert routes == sorted(routes)


def test_the_chart_is_a_file_of_its_own(found: dict) -> None:
    """Well-formed, in SVG's name space, and nothing in it that has to be fetched."""
    drawn = chart(found)

    root = ElementTree.fromstring(drawn)

    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root.findall("{http://www.w3.org/2000/svg}svg")) == 4
    assert "href" not in drawn and "url(" not in drawn


def test_another_size_leaves_the_chart_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, documented = tmp_path / "own.svg", tmp_path / "documented.svg"
    monkeypatch.setattr(route_limits, "CHART", documented)
    small = ["--agents", "200", "--sources", "2"]
    route_limits.main(small)
    assert list(tmp_path.iterdir()) == []
    route_limits.main([*small, "--chart", str(own)])
    assert list(tmp_path.iterdir()) == [own]
