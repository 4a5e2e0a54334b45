"""The rebuilt table equals what plain Python finds, on random graphs and on a real one."""

import random
from pathlib import Path

import networkx
from pyspark.sql import SparkSession

from glue_jobs.rebuild_routes import rebuild
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


def random_world(number: int) -> tuple[World, str]:
    """A power-law graph with hostile claims; some of everything that the rules speak of."""
    rng = random.Random(number)
    world = World(f"w{number}")
    names = [f"n{each}" for each in range(rng.randint(2, 24))]
    keys = [world.key(name) for name in names]
    for name in names:
        _add_agent(world, name, keys, rng)
    world.events.append(follows(keys[-1], rng.sample(keys, min(5, len(keys)))))
    return world, keys[-1]


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
        world.events.append(claim(pubkey, _claimed(world, name, rng), fee))
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


def rows_of(frame) -> dict[str, dict[str, tuple]]:
    """By source and prefix; a prefix stands once for each source."""
    found: dict[str, dict[str, tuple]] = {}
    for row in frame.collect():
        routes = found.setdefault(row.source, {})
        assert row.prefix not in routes
        assert (row.next_hop, row.owner) == (row.path[0], row.path[-1])
        routes[row.prefix] = (row.owner, (row.fee, row.hops, tuple(row.path)))
    return found


def test_random_graphs_equal_dijkstra(spark: SparkSession, tmp_path: Path) -> None:
    worlds = [random_world(number) for number in range(GRAPHS)]
    events: list[Event] = [each for world, _ in worlds for each in world.events]
    random.Random(1).shuffle(events)
    path = write_lines(tmp_path / "events.jsonl", events)

    frame, report = rebuild(spark, [path], [source for _, source in worlds], RULES)

    found = rows_of(frame)
    network = oracle.Network(events, RULES)
    expected = {source: oracle.routes(network, source) for _, source in worlds}
    assert found == {source: table for source, table in expected.items() if table}
    assert report.routes == sum(map(len, expected.values())) > 4 * GRAPHS
    # The worlds hold enough of what is hard.
    routes = [label for table in expected.values() for _, label in table.values()]
    assert sum(hops > 2 for _, hops, _ in routes) > GRAPHS
    assert len(report.refused) > 10 and report.malformed == 0


def test_a_real_social_graph(spark: SparkSession, tmp_path: Path) -> None:
    graph = networkx.les_miserables_graph().to_directed()
    world = World("miserables")
    for name in graph:
        fee = graph.degree(name) % 7
        world.agent(name, *graph[name], fee=fee, address=f"g.paris.{world.key(name)[:9]}")
    path = write_lines(tmp_path / "events.jsonl", world.events)
    rules = options(hop_limit=3)
    sources = [world.key(name) for name in ("Valjean", "Gavroche", "Napoleon", "Boulatruelle")]

    frame, report = rebuild(spark, [path], sources, rules)

    network = oracle.Network(world.events, rules)
    assert rows_of(frame) == {source: oracle.routes(network, source) for source in sources}
    assert (report.agents, report.edges) == (len(graph), graph.number_of_edges())
