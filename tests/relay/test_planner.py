"""The planner answers every filter as a list that is searched from end to end would."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.filters import parse_filter
from farthing.store.events import EventStore, Outcome, StoredEvent
from farthing.store.planner import ScanTooLong, plan
from farthing.store.postings import Lists
from farthing.store.reader import Reader
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine
from tests.relay.naive import NaiveStore
from tests.relay.random_worlds import World
from tests.relay.world import START, Clock, MotoTables, hex_id, made, make_agent

LATER = START + 2  # by then some events have expired
A, B = "a" * 64, "b" * 64
LISTS = Lists(NOSTR, 8)


def fill(agent: Agent, world: World) -> NaiveStore:
    """The same events into the store and into the naive one, which agree on each."""
    naive = NaiveStore()
    for ghost in world.ghosts():
        agent.engine.write_batch(agent.events.lists.postings(ghost, 0, None))
    for event in world.events():
        outcome, expected = agent.events.save(event), naive.save(event)
        if expected in ("STORED", "DUPLICATE"):
            assert outcome.name == expected, event
        else:  # deleted and superseded at once: either is a reason
            assert outcome in (Outcome.DELETED, Outcome.SUPERSEDED), event
    return naive


def compare(agent: Agent, naive: NaiveStore, world: World, rounds: int) -> int:
    """How many events the filters found."""
    total = 0
    for _ in range(rounds):
        filters = world.filters()
        parsed = [parse_filter(filter) for filter in filters]
        expected = naive.find(filters, LATER)

        assert [event.id for event in agent.reader.find_any(parsed)] == expected, filters
        assert [event.id for event in agent.reader.find(parsed[0])] == naive.find(
            filters[:1], LATER
        ), filters[0]
        total += len(expected)
    return total


@contextmanager
def sqlite_agent(directory: Path) -> Iterator[tuple[Agent, Clock]]:
    clock = Clock()
    engine = SqliteEngine(directory, clock=clock)
    try:
        yield make_agent(engine, clock), clock
    finally:
        engine.close()


@pytest.mark.parametrize(("worlds", "size"), [(range(40), 30), (range(100, 105), 200)])
def test_finds_what_the_naive_store_finds(tmp_path: Path, worlds: range, size: int) -> None:
    found = 0
    for seed in worlds:
        world = World(seed, size)
        with sqlite_agent(tmp_path / str(seed)) as (agent, clock):
            naive = fill(agent, world)
            clock.now = LATER
            found += compare(agent, naive, world, rounds=40)
    assert found > 20 * len(worlds)


def test_finds_the_same_on_dynamodb(moto_tables: MotoTables) -> None:
    for seed in range(3):
        world, clock = World(seed, 20, wide=False), Clock()
        agent = make_agent(moto_tables.empty(clock), clock)
        naive = fill(agent, world)
        clock.now = LATER
        compare(agent, naive, world, rounds=20)


def is_public(event: StoredEvent) -> bool:
    return event.kind not in (4, 1059)


def test_what_is_not_visible_uses_up_no_limit(tmp_path: Path) -> None:
    for seed in range(20):
        world = World(seed, 40)
        with sqlite_agent(tmp_path / str(seed)) as (agent, clock):
            naive = fill(agent, world)
            clock.now = LATER
            naive.stored = [event for event in naive.stored if event.kind not in (4, 1059)]
            for _ in range(20):
                filters = world.filters()
                parsed = [parse_filter(filter) for filter in filters]

                visible = agent.reader.find_any(parsed, is_public)

                assert [event.id for event in visible] == naive.find(filters, LATER), filters


@pytest.mark.parametrize("exactly", [1000, 3])
def test_counts_what_the_naive_store_counts(tmp_path: Path, exactly: int) -> None:
    estimates = 0
    for seed in range(20):
        world = World(seed, 40)
        with sqlite_agent(tmp_path / str(seed)) as (agent, clock):
            naive = fill(agent, world)
            clock.now = LATER
            naive.stored = [event for event in naive.stored if event.kind not in (4, 1059)]
            for _ in range(20):
                filters = world.filters()
                unlimited = [{**filter, "limit": 10**6} for filter in filters]
                expected = len(naive.find(unlimited, LATER))

                number, approximate = agent.reader.count_any(
                    [parse_filter(filter) for filter in filters], exactly, is_public
                )

                if approximate:
                    assert min(number, expected) > exactly
                    estimates += 1
                else:
                    assert number == expected, filters
    assert (estimates == 0) == (exactly == 1000)


def test_more_ids_than_are_counted_exactly_are_counted_exactly(agent: Agent) -> None:
    events = [made() for _ in range(6)]
    for event in events:
        agent.events.save(event)
    filter = parse_filter({"ids": [event.id for event in events]})

    assert agent.reader.count_any([filter], exactly=3) == (6, False)


class TestPlan:
    @pytest.mark.parametrize(
        ("filter", "lists"),
        [
            ({"authors": [A], "kinds": [2, 1]}, [LISTS.by_author_and_kind(A, k) for k in (1, 2)]),
            ({"authors": [B, A]}, [LISTS.by_author(A), LISTS.by_author(B)]),
            ({"#t": ["x"], "kinds": [1]}, [LISTS.by_tag("t", "x")]),
            ({"#t": ["x", "y"], "#e": [A]}, [LISTS.by_tag("e", A)]),
            ({"authors": [A, B], "#t": ["x"]}, [LISTS.by_tag("t", "x")]),
            ({"authors": [A], "#t": ["x", "y"]}, [LISTS.by_author(A)]),
            ({"kinds": [1]}, LISTS.by_kind(1)),
            ({}, LISTS.everything()),
            ({"since": 5}, LISTS.everything()),
        ],
    )
    def test_a_filter_reads_the_most_selective_lists(
        self, filter: dict[str, object], lists: list[str]
    ) -> None:
        assert plan(parse_filter(filter), LISTS).lists == lists

    def test_too_many_pairs_are_read_by_author(self) -> None:
        authors = [hex_id(number) for number in range(26)]
        filter = parse_filter({"authors": authors, "kinds": list(range(10))})

        assert plan(filter, LISTS).lists == [LISTS.by_author(author) for author in authors]

    def test_too_many_kinds_are_looked_for_in_everything(self) -> None:
        """Each has lists of its own: thousands of them would be thousands of requests."""
        assert len(plan(parse_filter({"kinds": list(range(64))}), LISTS).lists) == 64 * len(
            LISTS.by_kind(1)
        )
        assert plan(parse_filter({"kinds": list(range(65))}), LISTS).lists == LISTS.everything()

    def test_what_is_looked_for_in_everything_is_found(self, agent: Agent) -> None:
        events = [made(kind=kind, created_at=START - kind) for kind in (1, 2, 70, 9999)]
        for event in events:
            agent.events.save(event)
        filter = parse_filter({"kinds": list(range(2, 100)), "limit": 1})

        assert [found.id for found in agent.reader.find(filter)] == [events[1].id]


class TestScanning:
    @pytest.fixture
    def events(self, agent: Agent) -> list[Event]:
        events = [made(created_at=START + number, tags=[["t", "x"]]) for number in range(30)]
        for event in events:
            agent.events.save(event)
        return events

    @pytest.fixture
    def reader(self, agent: Agent, events: list[Event]) -> Reader:
        return Reader(agent.engine, agent.events, max_scan=20)

    def test_too_long_a_search_is_given_up(self, reader: Reader) -> None:
        with pytest.raises(ScanTooLong):
            list(reader.find(parse_filter({"authors": [A], "#t": ["nowhere"]})))

    def test_what_is_found_in_time_is_found(self, reader: Reader, events: list[Event]) -> None:
        found = list(reader.find(parse_filter({"authors": [A], "#t": ["x"], "limit": 20})))

        assert [event.id for event in found] == [event.id for event in reversed(events[10:])]

    def test_a_short_list_may_be_read_to_its_end(self, reader: Reader) -> None:
        twenty = {"authors": [A], "#t": ["nowhere"], "since": START + 10}
        assert list(reader.find(parse_filter(twenty))) == []

        with pytest.raises(ScanTooLong):
            list(reader.find(parse_filter({**twenty, "since": START + 9})))

    def test_nothing_is_read_for_what_matches_nothing(self, engine: Engine) -> None:
        reader = Reader(engine, EventStore(engine, NOSTR), max_scan=0)

        for filter in ({"limit": 0}, {"authors": []}, {"ids": []}, {"#t": []}, {"kinds": []}):
            assert list(reader.find(parse_filter(filter))) == []


def test_one_event_under_many_values_comes_once(agent: Agent) -> None:
    event = made(tags=[["t", "x"], ["t", "y"], ["t", "z"]])
    agent.events.save(event)

    found = agent.reader.find(parse_filter({"#t": ["x", "y", "z"]}))

    assert [each.id for each in found] == [event.id]
