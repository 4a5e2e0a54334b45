"""Which events are in the set of a sync, and what is read to know it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from farthing.context import Agent
from farthing.nostr.events import Event, public_key_of
from farthing.nostr.filters import parse_filter
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.relay.members import find_members
from farthing.store.events import EventStore
from farthing.store.memory import MemoryEngine
from farthing.store.planner import ScanAllowance
from farthing.store.postings import id_in, records_of, sort_key
from farthing.store.reader import Reader
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine, Item, Key, Table
from tests.relay.naive import NaiveStore
from tests.relay.random_worlds import World
from tests.relay.syncing import another_container, members, store_at_once
from tests.relay.world import ALICE, BOB, START, Client, Clock, hex_id, made, make_agent, signed
from tests.store.faulty import FaultyEngine


class Watched(FaultyEngine):
    """Remembers of which events the items were read."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.read: list[str] = []

    def get(self, table: Table, pk: str, sk: str) -> Item | None:
        self.read += [pk] * (table is Table.EVENTS)
        return super().get(table, pk, sk)

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]:
        wanted = list(keys)
        self.read += [pk for pk, _ in wanted if table is Table.EVENTS]
        return super().get_many(table, wanted)


@pytest.fixture
def engine(sqlite: SqliteEngine) -> Watched:
    return Watched(sqlite)


@pytest.fixture(autouse=True)
def _cold() -> Iterator[None]:
    another_container()
    yield
    another_container()


def ids(events: Iterable[Event]) -> set[str]:
    return {event.id for event in events}


class TestRecords:
    @pytest.mark.parametrize("created_at", [0, 1, 255, 256, START, 2**32, 2**40 - 1])
    def test_a_record_is_timestamp_and_id(self, created_at: int) -> None:
        event_id = bytes(range(100, 132))

        (record,) = [records_of([sort_key(created_at, event_id.hex())])]

        assert record == created_at.to_bytes(8, "big") + event_id

    def test_many_records_stand_in_the_order_of_their_keys(self) -> None:
        events = [made(created_at=START + 7 * number % 100) for number in range(300)]

        records = records_of([sort_key(event.created_at, event.id) for event in events])

        expected = [event.created_at.to_bytes(8, "big") + bytes.fromhex(event.id)
                    for event in events]  # fmt: skip
        assert bytes(records) == b"".join(expected)
        assert records_of([]) == b""


@pytest.mark.parametrize("seed", range(40))
def test_any_filters_choose_what_a_list_would(seed: int, clock: Clock) -> None:
    """Private kinds are left out: nobody has authenticated."""
    agent = make_agent(MemoryEngine(clock=clock), clock)
    world, naive = World(seed, 60), NaiveStore()
    for event in world.events():
        agent.events.save(event)
        naive.save(event)
    clock.now = START + 2  # by then some have expired
    for event in [each for each in naive.stored if each.kind in PRIVATE_KINDS]:
        naive.stored.remove(event)

    for _ in range(12):
        filters = world.filters()
        found = find_members(agent, [parse_filter(filter) for filter in filters])

        keys = [sk for batch in found for sk in batch.sort_keys]

        assert sorted(id_in(sk) for sk in keys) == sorted(naive.find(filters, clock.now)), filters


class TestWhatIsRead:
    FILTERS = (
        {},
        {"kinds": [1, 7]},
        {"authors": ["a" * 64]},
        {"authors": ["a" * 64], "kinds": [1]},
        {"#t": ["x", "y"]},
        {"#t": ["x"], "kinds": [1], "authors": ["a" * 64, "b" * 64]},
        {"since": START - 5, "until": START - 2},
        [{"kinds": [1]}, {"#t": ["x"]}],
    )

    @pytest.mark.parametrize("filter", FILTERS, ids=str)
    def test_no_event_where_postings_can_tell(
        self, agent: Agent, client: Client, engine: Watched, filter: Any
    ) -> None:
        store_at_once(agent, [
            made(created_at=START - number, kind=kind, tags=[["t", "x"], ["t", "y"]])
            for number, kind in enumerate([1, 7, 4, 1059] * 10)
        ])  # fmt: skip

        found = members(client, filter)

        assert found
        assert engine.read == []

    @pytest.mark.parametrize(
        "filter",
        [{"limit": 3}, {"ids": [hex_id(1)]}, {"#t": ["x"], "#p": ["b" * 64]}],
        ids=str,
    )
    def test_events_are_read_where_postings_cannot_decide(
        self, agent: Agent, client: Client, engine: Watched, filter: Any
    ) -> None:
        store_at_once(agent, [made(id=hex_id(number), tags=[["t", "x"], ["p", "b" * 64]])
                              for number in range(3)])  # fmt: skip

        assert members(client, filter)
        assert engine.read

    def test_private_events_of_others_only(
        self, agent: Agent, client: Client, engine: Watched
    ) -> None:
        alice, bob = public_key_of(ALICE), public_key_of(BOB)
        sent, received = made(kind=4, pubkey=alice), made(kind=4, pubkey=bob, tags=[["p", alice]])
        others = made(kind=4, pubkey=bob, tags=[["p", bob]])
        store_at_once(agent, [sent, received, others, made()])
        client.authenticate(ALICE)
        engine.read.clear()

        assert members(client, {"kinds": [4]}) == ids([sent, received])
        assert set(engine.read) == ids([received, others])  # of ours the posting shows it


class TestPrivateKinds:
    @pytest.mark.parametrize("kind", sorted(PRIVATE_KINDS))
    def test_are_for_those_they_name(self, agent: Agent, client: Client, kind: int) -> None:
        note = signed()
        secret = signed(kind=kind, tags=[["p", public_key_of(BOB)]])
        for event in (note, secret):
            agent.events.save(event)
        parties = {}
        for name, key in (("alice", ALICE), ("bob", BOB), ("eve", bytes([9] * 32))):
            parties[name] = Client(agent, name)
            parties[name].authenticate(key)

        assert members(client, {}) == {note.id}
        assert members(parties["alice"], {}) == {note.id, secret.id}
        assert members(parties["bob"], {}) == {note.id, secret.id}
        assert members(parties["eve"], {}) == {note.id}
        assert members(parties["eve"], {"ids": [secret.id]}) == set()

    def test_private_kinds_alone_ask_for_authentication(self, client: Client) -> None:
        ((kind, _, reason),) = client.send("NEG-OPEN", "s", {"kinds": [4]}, "6100000200")

        assert (kind, reason.split(":")[0]) == ("NEG-ERR", "auth-required")

    def test_a_set_that_needs_too_many_index_entries_is_too_big(
        self, agent_with: Callable[..., Agent]
    ) -> None:
        agent = agent_with(max_scan=10)
        store_at_once(agent, [made(kind=4) for _ in range(11)])
        client = Client(agent)
        client.authenticate(ALICE)

        answer = client.send("NEG-OPEN", "s", {"kinds": [4]}, "6100000200")

        assert answer == [["NEG-ERR", "s", "RESULTS_TOO_BIG", 10]]


class TestTheSet:
    def test_leaves_out_what_has_expired(self, agent: Agent, client: Client, clock: Clock) -> None:
        mortal = made(tags=[["expiration", str(START + 10)]])
        lasting = made()
        store_at_once(agent, [mortal, lasting])

        assert members(client, {}) == ids([mortal, lasting])
        clock.now = START + 10
        assert members(client, {}) == {lasting.id}

    def test_has_each_event_once(self, agent: Agent, client: Client) -> None:
        event = made(tags=[["t", "x"], ["t", "y"]])
        store_at_once(agent, [event])

        assert members(client, {"#t": ["x", "y"]}) == {event.id}
        assert members(client, [{"#t": ["x"]}, {"kinds": [1]}, {"ids": [event.id]}]) == {event.id}

    @pytest.mark.parametrize("limit", [0, 1, 3, 5, 9])
    def test_keeps_to_the_limit_with_the_newest(
        self, agent: Agent, client: Client, limit: int
    ) -> None:
        events = [made(created_at=START - number) for number in range(5)]
        store_at_once(agent, events)

        assert members(client, {"limit": limit}) == ids(events[:limit])

    def test_of_a_filter_that_matches_nothing(self, agent: Agent, client: Client) -> None:
        store_at_once(agent, [made()])

        for filter in ({"kinds": []}, {"since": START + 1, "until": START}, {"authors": []}):
            assert members(client, filter) == set()

    def test_follows_replacements_and_deletions(self, agent: Agent, client: Client) -> None:
        old, new = made(kind=0, created_at=START), made(kind=0, created_at=START + 1)
        gone = made()
        deletion = made(kind=5, tags=[["e", gone.id]])
        for event in (old, gone, new, deletion):
            agent.events.save(event)

        assert members(client, {}) == ids([new, deletion])

    def test_a_set_of_several_pages_is_complete(self, sqlite: SqliteEngine, clock: Clock) -> None:
        agent = make_agent(sqlite, clock)
        events = [made(created_at=START - number // 3) for number in range(2500)]
        store_at_once(agent, events)
        reader = Reader(sqlite, EventStore(sqlite, NOSTR), 10)  # no bound on what postings can tell

        pages = reader.scan(parse_filter({"kinds": [1]}), ScanAllowance(10**6)) or ()
        found = [sk for page in pages for sk in page.sort_keys]

        assert sorted(found) == sorted(sort_key(event.created_at, event.id) for event in events)
        assert members(Client(agent), {"authors": ["a" * 64]}) == ids(events)
