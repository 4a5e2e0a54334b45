"""Events of two formats in one set of tables: neither reader ever meets the other's."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from farthing.context import Agent, Kept
from farthing.handlers.streams import arrivals, new_entries, placed_events
from farthing.relay.fan_out import push_changes
from farthing.relay.sequence import number_all, number_events
from farthing.store import changes, events
from farthing.store.changes import Arrival, Change
from farthing.store.events import Outcome
from farthing.store.postings import sort_key
from farthing.store.spaces import NOSTR, SPACES
from farthing.store.sqlite import SqliteEngine
from farthing.store.streams import records_of
from farthing.store.table import Query, Table, read_all
from tests.relay.world import START, Client, hex_id, made, make_agent
from tests.store.other_format import NANOSECONDS, TICKS, Tick, TickFilter

NOW = START * NANOSECONDS
# Keys of which pairs are alike in their first 32 digits.
AUTHORS = [digit * 32 + other * 32 for digit in "ab" for other in "cd"]
ARN = "arn:aws:dynamodb:local:000000000000:table/farthing-"


@pytest.fixture(autouse=True)
def two_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (events, changes):
        monkeypatch.setattr(module, "SPACES", (TICKS, *SPACES))


@pytest.fixture
def ticks(agent: Agent) -> Kept[Tick]:
    return agent.kept(TICKS)


def tick(number: int, **changes: Any) -> Tick:
    return Tick(**{"id": hex_id(number), "pubkey": AUTHORS[0], "created_at": NOW, **changes})


def some_ticks(dice: random.Random) -> Iterator[Tick]:
    for number in range(60):
        tags = {dice.choice(["topic", "t", "long_key"]): tuple(dice.sample("uvw", 2))}
        yield tick(
            number,
            pubkey=dice.choice(AUTHORS),
            created_at=NOW + dice.randrange(20),
            kind=dice.choice([1, 5, 7, 60000]),
            tags=tuple(tags.items()),
        )


def some_filter(dice: random.Random) -> TickFilter:
    def maybe(value: Any) -> Any:
        return value if dice.random() < 0.4 else None

    prefixes = frozenset(key[: dice.choice([32, 64])] for key in dice.sample(AUTHORS, 2))
    return TickFilter(
        ids=maybe(frozenset(map(hex_id, dice.sample(range(70), 5))))
        if dice.random() < 0.2
        else None,
        authors=maybe(prefixes),
        kinds=maybe(frozenset(dice.sample([1, 5, 7, 60000], 2))),
        tags=maybe({"topic": frozenset("u")}) or maybe({"t": frozenset("vw")}) or {},
        since=maybe(NOW + 5),
        until=maybe(NOW + 15),
        limit=maybe(7),
    )


def test_the_other_format_is_found_as_a_naive_search_finds_it(ticks: Kept[Tick]) -> None:
    dice = random.Random(1)
    stored = list(some_ticks(dice))
    for each in stored:
        assert ticks.events.save(each) is Outcome.STORED
    stored.sort(key=lambda each: (-each.created_at, each.id))

    for _ in range(40):
        filter = some_filter(dice)
        expected = [each for each in stored if filter.matches(each)][: filter.limit]
        assert [found.event for found in ticks.reader.find(filter)] == expected, filter


def test_nanoseconds_decide_the_order_of_versions(ticks: Kept[Tick]) -> None:
    old = tick(1, kind=30000, created_at=NOW, tags=(("d", ("x",)),))
    new = tick(2, kind=30000, created_at=NOW + 1, tags=(("d", ("x",)),))

    assert ticks.events.save(new) is Outcome.STORED
    assert ticks.events.save(old) is Outcome.SUPERSEDED
    assert [found.id for found in ticks.reader.find(TickFilter())] == [new.id]


def test_the_latest_moment_there_is_has_a_place(ticks: Kept[Tick]) -> None:
    latest = tick(1, created_at=2**64 - 1)
    ticks.events.save(latest)
    ticks.events.save(tick(2))

    assert [found.event for found in ticks.reader.find(TickFilter())] == [latest, tick(2)]
    assert ticks.reader.find(TickFilter(until=NOW)).__next__().event == tick(2)


def test_one_id_in_both_formats_is_two_events(agent: Agent, ticks: Kept[Tick]) -> None:
    note, other = made(id=hex_id(7)), tick(7)

    assert agent.events.save(note) is Outcome.STORED
    assert ticks.events.save(other) is Outcome.STORED
    found, found_other = agent.events.get(note.id), ticks.events.get(other.id)

    assert found is not None and found.event == note
    assert found_other is not None and found_other.event == other


def test_a_deletion_of_one_format_leaves_the_other_alone(agent: Agent, ticks: Kept[Tick]) -> None:
    note, other = made(id=hex_id(7), pubkey=AUTHORS[0]), tick(7)
    agent.events.save(note)
    ticks.events.save(other)

    agent.events.save(made(kind=5, pubkey=AUTHORS[0], tags=[["e", note.id]]))
    ticks.events.save(tick(8, kind=5, tags=(("e", (other.id,)),)))

    assert agent.events.get(note.id) is None
    assert ticks.events.get(other.id) is not None


def test_nostr_clients_never_see_the_other_format(agent: Agent, ticks: Kept[Tick]) -> None:
    note = made(id=hex_id(1), pubkey=AUTHORS[0], tags=[["t", "u"]])
    agent.events.save(note)
    other = tick(2, tags=(("t", ("u",)),))
    ticks.events.save(other)
    number_events(agent, [Arrival(other.id, other.pubkey, other.kind)], TICKS)
    number_events(agent, [Arrival(note.id, note.pubkey, note.kind)])
    client = Client(agent)

    for filter in ({}, {"authors": [AUTHORS[0]]}, {"kinds": [1]}, {"#t": ["u"]}):
        assert client.ids(filter) == [note.id]
        assert client.send("COUNT", "c", filter)[-1][2] == {"count": 1}
    assert client.ids({"ids": [other.id]}) == []
    *entries, end = client.send("CHANGES", "c", {})
    assert [entry[4]["id"] for entry in entries] == [note.id]
    assert end == ["CHANGES", "c", "EOSE", 1]


class TestLog:
    def test_each_format_counts_on_its_own(self, agent: Agent, ticks: Kept[Tick]) -> None:
        number_events(agent, [Arrival(hex_id(n), AUTHORS[0], 1) for n in range(5)])
        number_events(agent, [Arrival(hex_id(n), AUTHORS[0], 1) for n in range(3)], TICKS)

        assert agent.changes.last_number() == 5
        assert ticks.changes.last_number() == 3
        assert ticks.changes.numbers_of([hex_id(2)]).get(hex_id(2)) == 3
        assert ticks.changes.numbers_of([hex_id(3)]).get(hex_id(3)) is None

    def test_authors_are_listed_by_the_beginning_of_their_keys(
        self, agent: Agent, ticks: Kept[Tick]
    ) -> None:
        written = [Arrival(hex_id(n), AUTHORS[n % 4], 1) for n in range(130)]
        number_events(agent, written, TICKS)
        alike = [
            Change(number, *arrival)
            for number, arrival in enumerate(written, 1)
            if arrival.pubkey.startswith("a" * 32)
        ]

        for authors in (["a" * 32], AUTHORS[:1], AUTHORS[:2]):
            assert list(ticks.changes.between(0, 130, authors)) == alike


def test_stream_records_are_told_apart(sqlite: SqliteEngine, clock: Any) -> None:
    agent = make_agent(sqlite, clock)
    sqlite.stream_position("test")
    note, other, version = made(), tick(2), tick(3, kind=10000)
    agent.events.save(note)
    agent.kept(TICKS).events.save(other)
    agent.kept(TICKS).events.save(version)

    records = records_of(sqlite.stream_after(0, 100), ARN)["Records"]
    number_all(agent, arrivals(records))
    behind = records_of(sqlite.stream_after(len(records), 100), ARN)["Records"]

    assert placed_events(records).events == {NOSTR: [note], TICKS: [other, version]}
    assert new_entries(behind) == {
        NOSTR: [Change(1, note.id, note.pubkey, 1)],
        TICKS: [Change(1, other.id, AUTHORS[0], 1), Change(2, version.id, AUTHORS[0], 10000)],
    }
    push_changes(agent, new_entries(behind)[NOSTR])


def test_every_key_of_the_other_format_has_its_prefix(engine: Any, agent: Agent) -> None:
    kept = agent.kept(TICKS)
    each = tick(1, tags=(("topic", ("u",)),), kind=10000)
    kept.events.save(each)
    rows = [
        row
        for pk in kept.events.lists.of(each)
        if pk.startswith("x")
        for row in read_all(engine, Query(Table.POSTINGS, pk))
    ]

    assert [row.sk for row in rows] == [sort_key(each.created_at, each.id)] * 5
    assert agent.engine.get(Table.EVENTS, f"x{each.id}", "xe") is not None
