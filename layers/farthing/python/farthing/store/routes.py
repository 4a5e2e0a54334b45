"""The routing table: generations of routes, and the pointer to the current one.

A new generation is written completely beside the live one, checked, and then the pointer moves. So
a reader sees the old table or the new one, never a mix. Generations expire; the current one is
renewed until another replaces it.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from zlib import crc32

from farthing.store.table import (
    EXPIRES,
    Absent,
    ConditionFailed,
    Engine,
    Equals,
    Item,
    Put,
    Query,
    Table,
    read_all,
)

SHARDS = 16
GENERATION_SECONDS = 7 * 24 * 3600
_POINTER = ("live", "pointer")
_BATCH = 500
# At this size the cache of look-ups is emptied: strangers can choose any number of addresses.
_MOST_REMEMBERED = 4096


class GenerationRefused(Exception):
    """The new table is refused and the old one stays. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Route:
    """The next hop for all addresses under `prefix`."""

    prefix: str
    owner: str  # the public key whose kind 10032 claims the address
    next_hop: str  # the public key of the peer that gets the packets
    fee: int
    hops: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    name: str
    count: int
    built: int


class RoutingTable:
    """Look-ups are cached for `cache_seconds`, together with the pointer."""

    def __init__(
        self,
        engine: Engine,
        *,
        cache_seconds: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._cached_at = 0.0
        self._generation: Generation | None = None
        self._routes: dict[str, Route | None] = {}

    def live(self) -> Generation | None:
        item = self._engine.get(Table.ROUTES, *_POINTER)
        return None if item is None else _generation(item)

    def lookup(self, address: str) -> Route | None:
        """The route with the longest prefix of the address, on segment boundaries."""
        self._refresh()
        if self._generation is None:
            return None
        if address not in self._routes:
            if len(self._routes) >= _MOST_REMEMBERED:
                self._routes.clear()
            self._routes[address] = self._find(self._generation.name, address)
        return self._routes[address]

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._cached_at >= self._cache_seconds:
            self._generation, self._routes, self._cached_at = self.live(), {}, now

    def _find(self, generation: str, address: str) -> Route | None:
        prefixes = list(prefixes_of(address))
        keys = [(_partition(generation, prefix), prefix) for prefix in prefixes]
        found = self._engine.get_many(Table.ROUTES, keys)
        return next(
            (_route(key[1], found[key]) for key in keys if key in found),
            None,
        )

    def routes(self, generation: str) -> Iterator[Route]:
        for shard in range(SHARDS):
            query = Query(Table.ROUTES, f"g#{generation}#{shard}", limit=_BATCH)
            for row in read_all(self._engine, query):
                yield _route(row.sk, row.item)

    def replace(
        self, name: str, routes: Iterable[Route], now: int, *, shrink_percent: int, force: bool
    ) -> Generation:
        """Write a generation and make it the current one, unless it looks like a mistake."""
        count = self.write(name, routes, now)
        return self.put_in_force(name, count, now, shrink_percent=shrink_percent, force=force)

    def check(self, count: int, *, shrink_percent: int) -> None:
        """Refuse a table that is empty or much smaller than the live one: a broken source is more
        likely than a vanished network."""
        _check(count, self.live(), shrink_percent)

    def put_in_force(
        self, name: str, count: int, now: int, *, shrink_percent: int, force: bool
    ) -> Generation:
        """Make a generation of `count` routes the current one. All its routes must have been
        written."""
        live = self.live()
        if not force:
            _check(count, live, shrink_percent)
        generation = Generation(name, count, now)
        condition = Absent() if live is None else Equals("generation", live.name)
        item = {"generation": name, "count": count, "built": now}
        try:
            self._engine.write(Put(Table.ROUTES, *_POINTER, item, condition))
        except ConditionFailed:
            raise GenerationRefused("another generation was put in force meanwhile") from None
        self._cached_at = 0.0
        return generation

    def renew(self, now: int) -> int:
        """Prolong the current table once half of its time is over. Returns the number of renewed
        routes."""
        pointer = self._engine.get(Table.ROUTES, *_POINTER)
        if pointer is None:
            return 0
        name = pointer["generation"]
        if now - pointer.get("renewed", pointer["built"]) < GENERATION_SECONDS // 2:
            return 0
        count = self.write(name, self.routes(name), now)
        renewed = {**pointer, "renewed": now}
        # If another generation has become the current one meanwhile, this one may expire.
        with suppress(ConditionFailed):
            self._engine.write(Put(Table.ROUTES, *_POINTER, renewed, Equals("generation", name)))
        return count

    def write(self, name: str, routes: Iterable[Route], now: int) -> int:
        """Write some or all routes of a generation that is not current yet. Returns their
        number."""
        count, puts = 0, []
        for route in routes:
            item = {
                "owner": route.owner,
                "next": route.next_hop,
                "fee": route.fee,
                "hops": route.hops,
                "path": list(route.path),
                EXPIRES: now + GENERATION_SECONDS,
            }
            puts.append(Put(Table.ROUTES, _partition(name, route.prefix), route.prefix, item))
            count += 1
            if len(puts) == _BATCH:
                self._engine.write_batch(puts)
                puts = []
        self._engine.write_batch(puts)
        return count


def prefixes_of(address: str) -> Iterator[str]:
    """The address and everything above it, longest first."""
    while address:
        yield address
        address = address.rpartition(".")[0]


def _check(count: int, live: Generation | None, shrink_percent: int) -> None:
    if not count:
        raise GenerationRefused("the new table is empty")
    if live is not None and count * 100 < live.count * (100 - shrink_percent):
        raise GenerationRefused(
            f"the new table has {count} routes, the live one {live.count}:"
            f" it shrinks by more than {shrink_percent} percent"
        )


def _partition(generation: str, prefix: str) -> str:
    return f"g#{generation}#{crc32(prefix.encode()) % SHARDS}"


def _generation(item: Item) -> Generation:
    return Generation(item["generation"], item["count"], item["built"])


def _route(prefix: str, item: Item) -> Route:
    return Route(
        prefix, item["owner"], item["next"], item["fee"], item["hops"], tuple(item["path"])
    )
