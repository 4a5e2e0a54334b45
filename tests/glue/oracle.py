"""The routing table in plain Python, written from the rules and not from the job: one source at a
time, Dijkstra with a heap, and claims accepted one after the other, nearest first."""

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from glue_jobs.rules import Options

Event = dict[str, Any]
Label = tuple[int, int, tuple[str, ...]]  # fee, hops, path

_ADDRESS = re.compile(r"(g|private|example|peer|self|test[1-3]?|local)([.][a-zA-Z0-9_~-]+)+")
_HEX = re.compile(r"[0-9a-f]{64}")
_FAR = 10**9


def number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and re.fullmatch("[0-9]{1,18}", text) else None


def first(event: Event, name: str) -> str | None:
    for tag in event["tags"]:
        if tag and tag[0] == name:
            return tag[1] if len(tag) > 1 else None
    return None


class Network:
    """What the events say, before anybody looks at it from somewhere."""

    def __init__(self, events: Iterable[Event], rules: Options) -> None:
        self.rules = rules
        newest: dict[tuple[str, int], Event] = {}
        for each in sorted(events, key=lambda e: (-e["created_at"], e["id"])):
            newest.setdefault((each["pubkey"], each["kind"]), each)
        self.address: dict[str, str] = {}
        self.fee: dict[str, int | None] = {}
        self.announced: dict[str, dict[str, tuple[int, int]]] = {}
        for (pubkey, kind), each in newest.items():
            if kind == 10032:
                self._claim(pubkey, each)
            elif kind == 10033:
                self.announced[pubkey] = self._routes(each)
        self.follows = {
            pubkey: self._followed(pubkey, each)
            for (pubkey, kind), each in newest.items()
            if kind == 3
        }
        self.followers = Counter(b for followed in self.follows.values() for b in followed)

    def _claim(self, pubkey: str, event: Event) -> None:
        address = first(event, "ilp_address")
        if address is None:
            try:
                address = json.loads(event["content"])["ilpAddress"]
            except (ValueError, KeyError, TypeError):
                return
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
            return
        segments = address.split(".")
        allowed = range(self.rules.min_segments, self.rules.max_segments + 1)
        if len(segments) not in allowed or segments[0] in self.rules.unroutable:
            return
        self.address[pubkey] = address
        fee, share = self._stated(event, "fee"), self._stated(event, "fee_ppm")
        if fee is not None and share is not None:
            fee += share * self.rules.typical_amount // 1_000_000
        else:
            fee = None
        self.fee[pubkey] = fee if fee is not None and fee <= self.rules.max_fee else None

    @staticmethod
    def _stated(event: Event, name: str) -> int | None:
        stated = first(event, name)
        return 0 if stated is None else number(stated)

    def _followed(self, pubkey: str, event: Event) -> set[str]:
        targets = {
            tag[1] for tag in event["tags"]
            if len(tag) > 1 and tag[0] == "p" and _HEX.fullmatch(str(tag[1]))
        }  # fmt: skip
        return {target for target in targets if target in self.address and target != pubkey}

    def _routes(self, event: Event) -> dict[str, tuple[int, int]]:
        rules, routes = self.rules, {}
        age = rules.now - event["created_at"]
        if not -rules.max_clock_skew <= age <= rules.max_announcement_age:
            return {}
        for tag in event["tags"]:
            if not tag or tag[0] != "route" or len(tag) < 3 or not _ADDRESS.fullmatch(tag[1]):
                continue
            fee = number(tag[2])
            hops = _hops(tag[3] if len(tag) > 3 else "", rules.hop_limit)
            if fee is None or fee > rules.max_fee or hops > rules.hop_limit:
                continue
            if tag[1] not in routes and len(routes) < rules.max_routes_per_peer:
                routes[tag[1]] = (fee, hops)
        return routes


def _hops(hint: str, unknown: int) -> int:
    if hint == "direct":
        return 2
    match = re.fullmatch("([0-9]{1,4})-hop", hint)
    return int(match[1]) + 1 if match and int(match[1]) else unknown


def routes(network: Network, source: str) -> dict[str, tuple[str, Label]]:
    """Address to owner, fee, hops and path."""
    labels, levels = dijkstra(network, source)
    heard = {peer: network.announced.get(peer, {}) for peer in network.follows.get(source, ())}
    held = _held(network, source, levels, {a for said in heard.values() for a in said})
    table = {}
    for address, owner in held.items():
        offers = [
            (fee, hops, (peer, owner))
            for peer, said in heard.items()
            for fee, hops in [said.get(address, (-1, 0))]
            if fee >= 0 and peer != owner
        ]
        best = labels.get(owner)
        if best and address in heard.get(best[2][0], {}) and best[2][0] != owner:
            best = _around(network, source, labels, owner, address, heard)
        offers += [best] if best else []
        if offers and owner != source:
            table[address] = (owner, min(offers))
    return table


def dijkstra(network: Network, source: str) -> tuple[dict[str, Label], dict[str, int]]:
    """The best label of each agent within the hop limit, and the fewest hops to it."""
    best: dict[tuple[str, int], Label] = {}
    heap: list[tuple[Label, str]] = [((0, 0, ()), source)]
    while heap:
        label, at = heapq.heappop(heap)
        fee, hops, path = label
        if (at, hops) in best:
            continue
        best[at, hops] = label
        through = 0 if at == source else network.fee[at]
        if through is None or hops == network.rules.hop_limit:
            continue
        for peer in network.follows.get(at, ()):
            if peer != source:
                heapq.heappush(heap, ((fee + through, hops + 1, (*path, peer)), peer))
    labels: dict[str, Label] = {}
    levels: dict[str, int] = {source: 0}
    for (at, hops), label in best.items():
        if at != source:
            labels[at] = min(labels.get(at, label), label)
            levels[at] = min(levels.get(at, hops), hops)
    return labels, levels


def _held(network: Network, source: str, levels: dict[str, int], named: set[str]) -> dict[str, str]:
    def rank(owner: str) -> tuple[int, int, str]:
        return levels.get(owner, _FAR), -network.followers[owner], owner

    held: dict[str, str] = {}
    claims = [(o, a) for o, a in network.address.items() if o in levels or a in named]
    for owner, address in sorted(claims, key=lambda each: rank(each[0])):
        if not any(_nested(address, other) for other in held):
            held[address] = owner
    return held


def _nested(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _around(network: Network, source: str, labels: dict[str, Label], owner: str, address: str,
            heard: dict[str, dict[str, tuple[int, int]]]) -> Label | None:  # fmt: skip
    """The best label whose next hop has said nothing of the address."""
    ways = []
    for before, (fee, hops, path) in labels.items():
        through = network.fee[before]
        if owner not in network.follows.get(before, ()) or owner in path or through is None:
            continue
        if hops < network.rules.hop_limit and address not in heard[path[0]]:
            ways.append((fee + through, hops + 1, (*path, owner)))
    return min(ways, default=None)
