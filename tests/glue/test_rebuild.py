"""The rebuilt table equals what plain Python finds, on random graphs and on a real one."""

import random

import networkx
import pytest
from pyspark.sql import DataFrame, SparkSession

from glue_jobs.rebuild_routes import rebuild
from glue_jobs.rules import Report
from tests.glue import oracle
from tests.glue.world import (
    NOW,
    Event,
    World,
    announces,
    claim,
    event,
    follows,
    options,
    write_lines,
)

GRAPHS = 300
RULES = options(hop_limit=4, max_fee=50, max_routes_per_peer=5)


def random_world(number: int) -> tuple[World, list[str]]:
    """A power-law graph with hostile claims; some of everything that the rules speak of."""
    rng = random.Random(number)
    world = World(f"w{number}")
    names = [f"n{each}" for each in range(rng.randint(2, 24))]
    keys = [world.key(name) for name in names]
    for name in names:
        _add_agent(world, name, keys, rng)
    world.events.append(follows(keys[-1], rng.sample(keys, min(5, len(keys)))))
    return world, keys[-1:]


def _add_agent(world: World, name: str, keys: list[str], rng: random.Random) -> None:
    pubkey = world.key(name)
    older = {"created_at": NOW - 1000 - rng.randrange(3)}
    followed = [keys[int(len(keys) * rng.random() ** 2)] for _ in range(rng.randrange(1, 6))]
    tags = [["p", each] for each in followed + followed[:1]]
    tags += rng.sample([["p"], [], ["p", "not a key"], ["p", "F" * 64], ["e", keys[0]]], 2)
    world.events.append(event(pubkey, 3, tags))
    world.events.append(follows(pubkey, keys, **older))
    if rng.random() < 0.9:
        fee = rng.choice([None, 0, 1, 1, 2, 3, 5, 50, rng.choice([51, "x", "-1", ""])])
        about = claim(pubkey, _claimed(world, name, rng), fee)["tags"]
        if rng.random() < 0.3:
            about.append(["fee_ppm", str(rng.choice([0, 99, 100, 450, 10**7, "x"]))])
        world.events.append(event(pubkey, 10032, about))
        world.events.append(claim(pubkey, world.address("old"), 0, **older))
    if rng.random() < 0.8:
        routes = [
            (world.address(f"n{rng.randrange(len(keys))}"), rng.choice([0, 1, 4, 9, 30, 51, "x"]),
             rng.choice(["direct", "2-hop", "9-hop", "?"]))
            for _ in range(rng.randrange(9))
        ]  # fmt: skip
        created_at = rng.choice([*[NOW - 5] * 5, NOW + 10**6, NOW - 10**7])
        world.events.append(announces(pubkey, *routes, created_at=created_at))


def _claimed(world: World, name: str, rng: random.Random) -> str:
    other = world.address(f"n{rng.randrange(4)}")
    if rng.random() < 0.85:
        return world.address(name)
    return rng.choice([other, f"{other}.{name}", f"{other}.x", f"{other}.x.y", "g", "g.agent",
                       f"g.{world.space}", f"peer.{world.space}.{name}", "no address"])  # fmt: skip


def scale_free_world() -> tuple[World, list[str]]:
    """One that is larger: a thousand agents, some of them with a hundred followers."""
    rng, world = random.Random(7), World("scale-free")
    graph = networkx.DiGraph(networkx.barabasi_albert_graph(1000, 3, seed=7))
    graph.remove_edges_from(rng.sample(sorted(graph.edges), len(graph.edges) // 3))
    for name in graph:
        world.agent(str(name), *map(str, graph[name]), fee=rng.randrange(4),
                    address=_claimed(world, f"n{name}", rng))  # fmt: skip
    _, most_followed = max((degree, name) for name, degree in graph.in_degree())
    sources = [most_followed, *rng.sample(sorted(graph), 5)]
    return world, [world.key(str(name)) for name in sources]


def social_graphs() -> list[tuple[World, list[str]]]:
    """Of networkx: two of real people, Zachary's karate club and the families of Florence, and the
    cast of a novel; each with a few of its agents as sources."""
    graphs = {
        "miserables": networkx.les_miserables_graph(),
        "karate": networkx.karate_club_graph(),
        "florence": networkx.florentine_families_graph(),
    }
    worlds = []
    for space, graph in graphs.items():
        world = World(space)
        for name in graph:
            world.agent(str(name), *map(str, graph[name]), fee=graph.degree(name) % 7,
                        address=world.address(world.key(str(name))[:9]))  # fmt: skip
        by_degree = sorted(graph, key=graph.degree)
        chosen = {by_degree[0], by_degree[len(graph) // 2], by_degree[-1]}
        worlds.append((world, [world.key(str(name)) for name in chosen]))
    return worlds


Tables = dict[str, dict[str, tuple]]  # routes by source and prefix


@pytest.fixture(scope="module")
def worlds() -> list[tuple[World, list[str]]]:
    return [*map(random_world, range(GRAPHS - 1)), scale_free_world(), *social_graphs()]


@pytest.fixture(scope="module")
def expected(worlds: list[tuple[World, list[str]]]) -> Tables:
    tables = {}
    for world, sources in worlds:
        network = oracle.Network(world.events, RULES)
        tables |= {source: oracle.routes(network, source) for source in sources}
    return tables


@pytest.fixture(scope="module")
def rebuilt(
    spark: SparkSession,
    worlds: list[tuple[World, list[str]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Tables, Report]:
    """All worlds in one rebuild, side by side: starting a job costs more than a small graph."""
    events: list[Event] = [each for world, _ in worlds for each in world.events]
    random.Random(1).shuffle(events)
    path = write_lines(tmp_path_factory.mktemp("worlds") / "events.jsonl", events)
    all_sources = [source for _, sources in worlds for source in sources]
    frame, report = rebuild(spark, [path], all_sources, RULES)
    return tables_of(frame), report


def tables_of(frame: DataFrame) -> Tables:
    """A prefix stands once for each source."""
    found: Tables = {}
    for row in frame.collect():
        routes = found.setdefault(row.source, {})
        assert row.prefix not in routes
        assert (row.next_hop, row.owner) == (row.path[0], row.path[-1])
        routes[row.prefix] = (row.owner, (row.fee, row.hops, tuple(row.path)))
    return found


def test_random_graphs_equal_dijkstra(
    rebuilt: tuple[Tables, Report], expected: Tables, worlds: list[tuple[World, list[str]]]
) -> None:
    found, report = rebuilt

    for _, sources in worlds[:GRAPHS]:
        for source in sources:
            assert found.get(source, {}) == expected[source]
    assert report.routes == sum(map(len, expected.values())) > 4 * GRAPHS
    # The worlds hold enough of what is hard.
    routes = [label for table in expected.values() for _, label in table.values()]
    assert sum(hops > 2 for _, hops, _ in routes) > GRAPHS
    assert len(report.refused) > 10 and report.malformed == 0


def test_real_social_graphs_equal_dijkstra(
    rebuilt: tuple[Tables, Report], expected: Tables, worlds: list[tuple[World, list[str]]]
) -> None:
    found, _ = rebuilt

    for world, sources in worlds[GRAPHS:]:
        for source in sources:
            assert found[source] == expected[source]
        agents = sum(each["kind"] == 10032 for each in world.events)
        assert max(len(found[source]) for source in sources) == agents - 1, "all are reached"
