"""How far routes propagate: agents reached, size of the routing table and fees by hop limit.

    python -m tests.bench.route_limits [--agents N] [--sources N] [--seed N]

A follow graph with a power law on both sides is made from a seed. From sampled agents the cheapest
paths are found by the rule of the real job (`glue_jobs/paths.py`), one round for each hop. The same
arguments print the same table and write the same chart.
"""

import argparse
import math
import random
import re
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Any

from farthing.ilp.fees import TYPICAL_AMOUNT, forwarding_fee
from farthing.settings import Settings
from farthing.store.attributes import item_size
from farthing.store.routes import Route, RoutingTable
from glue_jobs.charts import Series, columns
from tests.e2e.relay_process import ROOT

HOP_LIMITS = range(1, 7)
NO_LIMIT = 64  # rounds end much earlier, with the last path that is cheaper than a shorter one
CHART = ROOT / "docs/routes-by-hop-limit.svg"
UNREACHED = sys.maxsize

# Follows of an agent, on average: a network that has just begun, one in use, and a dense one.
MEAN_FOLLOWS = (3, 10, 30)
_CHARTED = 10
_SPARSE = 3
_POPULARITY = 2.3  # exponent of the power law of followers, as measured in social networks
_ACTIVITY = 2.5  # and of follows
_RETURNED = 0.2  # share of follows that are returned: what makes hubs follow many
_MOST_FOLLOWS = 2000  # a follow list has to fit into one event


@dataclass(frozen=True, slots=True)
class FollowGraph:
    """Agents are numbers; a packet goes from an agent to one that it follows."""

    follows: Sequence[Sequence[int]]
    fees: Sequence[int]  # what an agent keeps of a typical packet that it forwards


@dataclass(slots=True)
class Reach:
    """What the sampled sources see within one hop limit, all of them together."""

    agents: int
    routes: list[int] = field(default_factory=list)  # of each source
    fees: Counter[int] = field(default_factory=Counter)
    hops: Counter[int] = field(default_factory=Counter)

    @property
    def mean_routes(self) -> float:
        return sum(self.routes) / len(self.routes)

    @property
    def percent(self) -> float:
        return 100 * self.mean_routes / (self.agents - 1)

    @property
    def worst_percent(self) -> float:
        return 100 * min(self.routes) / (self.agents - 1)

    @property
    def table_bytes(self) -> int:
        """Of one source, on average."""
        total = sum(count * route_bytes(hops) for hops, count in self.hops.items())
        return total // len(self.routes)

    def fee_at(self, share: float) -> int:
        """The fee that this share of all routes does not exceed."""
        wanted = math.ceil(share * self.fees.total())
        for fee, so_far in zip(
            sorted(self.fees), accumulate(self.fees[fee] for fee in sorted(self.fees)), strict=True
        ):
            if so_far >= wanted:
                return fee
        return 0


# The network


def follow_graph(agents: int, mean_follows: int, seed: int) -> FollowGraph:
    rng = random.Random(f"{seed}/{agents}/{mean_follows}")
    popularity = list(accumulate(_popularities(agents, rng)))
    follows: list[set[int]] = []
    for agent in range(agents):
        count = _follow_count(mean_follows, rng)
        follows.append(set(rng.choices(range(agents), cum_weights=popularity, k=count)) - {agent})
    _return_follows(follows, rng)
    # Sorted lists: the order in a set is nobody's promise, and arrays are a tenth of the size.
    listed = [array("l", sorted(each)) for each in follows]
    return FollowGraph(listed, [_fee(rng) for _ in range(agents)])


def _return_follows(follows: list[set[int]], rng: random.Random) -> None:
    given = [sorted(each) for each in follows]
    for agent, followed in enumerate(given):
        for other in followed:
            if rng.random() < _RETURNED and len(follows[other]) < _MOST_FOLLOWS:
                follows[other].add(agent)


def _popularities(agents: int, rng: random.Random) -> list[float]:
    """Weights by which agents are followed, in no order that has to do with their numbers."""
    weights = [rank ** (-1 / (_POPULARITY - 1)) for rank in range(1, agents + 1)]
    rng.shuffle(weights)
    return weights


def _follow_count(mean: int, rng: random.Random) -> int:
    """A Pareto variable of this mean, at least 1."""
    exponent = _ACTIVITY - 1
    smallest = mean * (exponent - 1) / exponent
    return max(1, min(round(smallest * rng.paretovariate(exponent)), _MOST_FOLLOWS))


def _fee(rng: random.Random) -> int:
    """Half of all agents leave the fee as it is. The others ask from a tenth of it to ten times."""
    default = forwarding_fee(Settings.forward_fee, Settings.forward_fee_ppm, TYPICAL_AMOUNT)
    return default if rng.random() < 0.5 else round(default * 10 ** rng.uniform(-1, 1))


# The routes


@dataclass(frozen=True, slots=True)
class Labels:
    """The cheapest paths within so many hops: fee and hops of each agent."""

    fees: list[int]
    hops: list[int]


def cheapest_paths(graph: FollowGraph, source: int, hop_limit: int) -> Iterator[Labels]:
    """After each round the labels of the best paths of at most that many hops. One object, which
    the next round changes. Only what changed in one round is extended in the next."""
    size = len(graph.follows)
    labels = Labels([UNREACHED] * size, [0] * size)
    labels.fees[source] = 0
    changed = {source: 0}
    for hops in range(1, hop_limit + 1):
        if changed:
            changed = _extended(graph, labels, changed, source, hops)
        yield labels


def _extended(
    graph: FollowGraph, labels: Labels, changed: dict[int, int], source: int, hops: int
) -> dict[int, int]:
    found: dict[int, int] = {}
    fees = labels.fees
    for agent, fee in changed.items():
        # The source pays; whoever forwards keeps a fee; the receiver keeps none.
        onward = fee if agent == source else fee + graph.fees[agent]
        for followed in graph.follows[agent]:
            if onward < fees[followed]:
                fees[followed] = found[followed] = onward
    for agent in found:
        labels.hops[agent] = hops
    return found


def reach_by_hop_limit(graph: FollowGraph, sources: Sequence[int]) -> dict[int, Reach]:
    """Within each of the hop limits, and without one."""
    reaches = {limit: Reach(len(graph.follows)) for limit in (*HOP_LIMITS, NO_LIMIT)}
    for source in sources:
        for hops, labels in enumerate(cheapest_paths(graph, source, NO_LIMIT), 1):
            if hops in reaches:
                _add(reaches[hops], labels)
    return reaches


def _add(reach: Reach, labels: Labels) -> None:
    fees, hops = Counter(labels.fees), Counter(labels.hops)
    fees[0] -= 1  # the source itself
    del fees[UNREACHED], hops[0]
    reach.routes.append(fees.total())
    reach.fees += fees
    reach.hops += hops


def route_bytes(hops: int) -> int:
    """Size of a route's item in the routing table, by the rules of DynamoDB."""
    key = "f" * 64
    route = Route(f"g.agent.{key}", key, key, TYPICAL_AMOUNT, hops, (key,) * hops)
    written = _Written()
    RoutingTable(written).write("0" * 20, [route], 0)  # type: ignore[arg-type]
    (put,) = written.puts
    return item_size(put.pk, put.sk, put.item)


class _Written:
    """As much of an engine as writing routes needs."""

    def __init__(self) -> None:
        self.puts: list[Any] = []

    def write_batch(self, puts: Sequence[Any]) -> None:
        self.puts += puts


# What comes out

_HEADINGS = ("hop limit", "reached", "worst source", "routes", "table", "fee: median", "95 %")


def table(reaches: dict[int, Reach]) -> str:
    """As Markdown, to be copied into the docs."""
    rows = [
        (
            "none" if limit == NO_LIMIT else str(limit),
            f"{reach.percent:.1f} %", f"{reach.worst_percent:.1f} %",
            f"{reach.mean_routes:,.0f}", f"{reach.table_bytes / 1e6:.2f} MB",
            _share(reach.fee_at(0.5)), _share(reach.fee_at(0.95)),
        )
        for limit, reach in reaches.items()
    ]  # fmt: skip
    lines = [_HEADINGS, ("--:",) * len(_HEADINGS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _share(fee: int) -> str:
    """A fee as a part of the typical packet."""
    return f"{100 * fee / TYPICAL_AMOUNT:.2f} %"


_PANEL = 300
_STYLE = """
svg { --ink: #1a2230; --faint: #5b6676; --line: #dfe3e9; --c1: #0072b2; --c2: #d55e00; }
@media (prefers-color-scheme: dark) {
svg { --ink: #e8ecf2; --faint: #9aa6b6; --line: #2b3544; --c1: #56b4e9; --c2: #f0894a; } }
text { font: 12px system-ui, sans-serif; fill: var(--faint); }
.title { font-size: 15px; font-weight: 600; fill: var(--ink); }
.grid { stroke: var(--line); } .base { stroke: var(--faint); } .hover { fill: transparent; }
.c1 { fill: var(--c1); } .c2 { fill: var(--c2); }
"""


def chart(found: dict[int, dict[int, Reach]]) -> str:
    """One SVG file: reach of two networks, and table size and fees of one, by hop limit."""
    reaches, sparse = ([found[mean][limit] for limit in HOP_LIMITS] for mean in (_CHARTED, _SPARSE))
    median, most = ([reach.fee_at(share) for reach in reaches] for share in (0.5, 0.95))
    panels = [
        (f"Agents reached, percent ({_CHARTED} follows each)", _reached(reaches)),
        (f"Agents reached, percent ({_SPARSE} follows each)", _reached(sparse)),
        (
            f"Bytes of the routing table ({_CHARTED} follows each)",
            [Series("bytes", [reach.table_bytes for reach in reaches], "c1")],
        ),
        (
            f"Fees of a packet of {TYPICAL_AMOUNT:,} ({_CHARTED} follows each)",
            [
                Series("median", median, "c1"),
                Series("up to the 95th percentile", _differences(most, median), "c2"),
            ],
        ),
    ]
    drawn = "".join(_panel(at, title, series) for at, (title, series) in enumerate(panels))
    height = _PANEL * len(panels)
    about = "Reachability, table size and fees by hop limit, 1 to 6; figures in the text"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" role="img" '
        f'aria-label="{about}"><style>{_STYLE}</style>{drawn}</svg>\n'
    )


def _reached(reaches: Sequence[Reach]) -> list[Series]:
    reached = [round(reach.percent) for reach in reaches]
    before = [0, *reached[:-1]]
    return [
        Series("with a lower limit too", before, "c1"),
        Series("only with this one", _differences(reached, before), "c2"),
    ]


def _differences(larger: Sequence[int], smaller: Sequence[int]) -> list[int]:
    return [one - other for one, other in zip(larger, smaller, strict=True)]


def _panel(at: int, title: str, series: Sequence[Series]) -> str:
    y = at * _PANEL
    drawn = columns(title, [str(limit) for limit in HOP_LIMITS], series)
    # The summary of the file names the panels; a panel's own would add its columns up.
    placed = f'<svg x="0" y="{y + 44}" width="720" height="240" viewBox="0 0 720 240">'
    legend = "".join(
        f'<rect class="{each.colour}" x="{56 + 170 * number}" y="{y + 30}" width="10" height="10"/>'
        f'<text x="{71 + 170 * number}" y="{y + 39}">{escape(each.name)}</text>'
        for number, each in enumerate(series)
    )
    return f'<text class="title" x="56" y="{y + 20}">{escape(title)}</text>{legend}' + re.sub(
        "^<svg[^>]*>", placed, drawn
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.route_limits", description=__doc__)
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--sources", type=int, default=40, help="agents whose tables are made")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--chart", type=Path, help="file for the chart; without any option, the one in docs"
    )
    options = parser.parse_args(arguments)
    usual = options == parser.parse_args([])
    found = {}
    for mean in MEAN_FOLLOWS:
        graph = follow_graph(options.agents, mean, options.seed)
        edges = sum(map(len, graph.follows))
        sources = random.Random(options.seed).sample(range(options.agents), options.sources)
        found[mean] = reach_by_hop_limit(graph, sources)
        print(f"{mean} follows each, some returned: {options.agents:,} agents, {edges:,} follows,"
              f" {options.sources} sources\n\n{table(found[mean])}\n", flush=True)  # fmt: skip
    target = CHART if usual else options.chart
    if target is not None:  # another size or seed must not change what the documentation shows
        target.write_text(chart(found))
        print(f"chart: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
