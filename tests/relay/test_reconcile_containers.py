"""Any container answers any message of a sync as the one that opened it would, or closes it."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.negentropy import Initiator, SealedVector
from farthing.relay.connect import disconnect
from farthing.relay.sealed_sets import SEALED, SealedSets
from farthing.store import syncs
from farthing.store.memory import MemoryEngine
from farthing.store.syncs import Sync
from farthing.store.table import Table
from tests.relay.syncing import (
    EMPTY,
    another_container,
    members,
    reconcile,
    sealed,
    store_at_once,
)
from tests.relay.world import ALICE, START, Client, Clock, MotoTables, made, make_agent, signed

A, B = "a" * 64, "b" * 64
CLOSED = ["NEG-ERR", "sync", "CLOSED"]
FILTERS: list[Any] = [
    {},
    {"kinds": [1]},
    {"authors": [A]},
    {"#t": ["x", "y"]},
    {"#t": ["x", "y"], "#p": [A]},
    {"limit": 40},
    [{"kinds": [1]}, {"#t": ["x"]}, {"limit": 5}],
]


@pytest.fixture(autouse=True)
def _cold() -> Iterator[None]:
    another_container()
    yield
    another_container()


class Dice:
    """Events over so few authors, kinds and times that filters split them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def event(self) -> Event:
        choice = self.random.choice
        tags = [["t", choice("xyz")], ["t", choice("xyz")], ["p", choice([A, B])]]
        if self.random.random() < 0.1:
            tags.append(["expiration", str(START + self.random.randint(50, 100))])
        id = f"{self.random.getrandbits(256):064x}"
        created_at = START - self.random.randint(0, 20)
        return made(id=id, pubkey=choice([A, B]), kind=choice([1, 1, 7]), created_at=created_at,
                    tags=tags)  # fmt: skip

    def events(self, number: int) -> list[Event]:
        return [self.event() for _ in range(number)]


class Side:
    """One connection's sync, a message at a time."""

    def __init__(self, agent: Agent, name: str, filter: Any, mine: list[Event]) -> None:
        self.client = Client(agent, name)
        self._head: tuple[Any, ...] = ("NEG-OPEN", "sync", filter)
        self._initiator = Initiator(sealed(mine))
        self._message: bytes | None = self._initiator.initiate()

    @property
    def is_through(self) -> bool:
        return self._message is None

    def step(self) -> Any:
        assert self._message is not None
        (answer,) = self.client.send(*self._head, self._message.hex())
        self._head = ("NEG-MSG", "sync")
        if answer[0] == "NEG-MSG":
            self._message = self._initiator.reconcile(bytes.fromhex(answer[2])).message
        return answer


def cold_start(side: Side) -> None:
    SEALED.forget(side.client.id, "sync")


def fresh_agent(**options: Any) -> tuple[Agent, Clock]:
    clock = Clock()
    agent = make_agent(MemoryEngine(clock=clock), clock, sync_frame=4096, **options)
    clock.now -= 30
    return agent, clock


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["store", "again", "tick"]), st.integers(1, 15)), max_size=4
)
STEPS = st.lists(st.tuples(ACTIONS, st.booleans()), min_size=12, max_size=12)


@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0, 1, 31, 33, 120, 300]),
    filter=st.sampled_from(FILTERS),
    steps=STEPS,
)
@settings(max_examples=60)
def test_the_answers_are_the_same_whatever_is_stored_in_between(
    seed: int, size: int, filter: Any, steps: list[tuple[list[tuple[str, int]], bool]]
) -> None:
    dice, (agent, clock) = Dice(seed), fresh_agent()
    stored = dice.events(size)
    for part in range(3):  # some long before, some just now
        store_at_once(agent, stored[part::3])
        clock.now += dice.random.choice([0, 5, 15])
    mine = [*dice.random.sample(stored, size // 2), *dice.events(size // 10)]
    warm, changing = (Side(agent, name, filter, mine) for name in ("warm", "changing"))

    for actions, container_changes in steps:
        if warm.is_through:
            break
        for action, number in actions:
            if action == "store":
                store_at_once(agent, dice.events(number))
            elif action == "again" and stored:
                agent.events.save(dice.random.choice(stored))
            elif action == "tick" and clock.now + number < START + 50:  # before any expires
                clock.now += number
        if container_changes:
            cold_start(changing)
        assert changing.step() == warm.step()


@given(seed=st.integers(0, 2**32), filter=st.sampled_from(FILTERS), when=st.integers(1, 3))
@settings(max_examples=60)
def test_where_events_are_gone_it_is_the_same_answer_or_none(
    seed: int, filter: Any, when: int
) -> None:
    dice, (agent, clock) = Dice(seed), fresh_agent()
    stored = dice.events(200)
    store_at_once(agent, stored)
    warm, changing = (Side(agent, name, filter, stored[:80]) for name in ("warm", "changing"))

    for number in range(12):
        if warm.is_through:
            break
        if number == when:
            for event in dice.random.sample(stored, 3):
                agent.events.save(made(kind=5, pubkey=event.pubkey, tags=[["e", event.id]]))
            clock.now += dice.random.choice([0, 70])  # others expire
        if number >= when:
            cold_start(changing)
        answer, expected = changing.step(), warm.step()
        assert answer in (expected, CLOSED)
        if answer == CLOSED:
            assert changing.client.send("NEG-MSG", "sync", EMPTY) == [CLOSED]
            break


class TestAfterADeletion:
    def open(self, client: Client) -> list[Event]:
        events = [made() for _ in range(3)]
        store_at_once(client.agent, events)
        client.send("NEG-OPEN", "sync", {"kinds": [1]}, EMPTY)
        deletion = made(kind=5, pubkey=events[0].pubkey, tags=[["e", events[0].id]])
        client.agent.events.save(deletion)
        return events

    @pytest.fixture
    def client(self) -> Client:
        return Client(fresh_agent()[0])

    def test_the_container_that_knows_the_set_goes_on(self, client: Client) -> None:
        events = self.open(client)

        ((_, _, answer),) = client.send("NEG-MSG", "sync", EMPTY)

        assert events[0].id in answer

    def test_after_a_deletion_another_container_closes_the_sync(self, client: Client) -> None:
        self.open(client)
        another_container()

        assert client.send("NEG-MSG", "sync", EMPTY) == [CLOSED]
        assert client.agent.syncs.open_ids("client") == set()
        assert len(members(client, {"kinds": [1]})) == 2


class TestMany:
    """More are stored in a few seconds than a sync's record can name."""

    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(syncs, "_MOST_RECENT", 3)

    def test_are_known_by_their_second(self) -> None:
        agent, clock = fresh_agent()
        store_at_once(agent, [made() for _ in range(5)])
        side = Side(agent, "client", {}, [])
        expected = side.step()
        clock.now += 1
        store_at_once(agent, [made() for _ in range(5)])
        cold_start(side)

        assert side.client.send("NEG-MSG", "sync", EMPTY) == [expected]

    def test_close_the_sync_where_that_does_not_tell(self) -> None:
        agent, _ = fresh_agent()
        store_at_once(agent, [made() for _ in range(5)])
        side = Side(agent, "client", {}, [])
        side.step()
        store_at_once(agent, [made()])
        cold_start(side)

        assert side.client.send("NEG-MSG", "sync", EMPTY) == [CLOSED]


def test_a_sync_keeps_the_visibility_of_the_client_that_opened_it(clock: Clock) -> None:
    """Not who the client has become since: the set would be another one."""
    agent = make_agent(MemoryEngine(clock=clock), clock)
    client = Client(agent)
    store_at_once(agent, [signed(kind=4), signed(kind=1)])
    first = client.send("NEG-OPEN", "sync", {}, EMPTY)
    client.authenticate(ALICE)
    another_container()

    assert client.send("NEG-MSG", "sync", EMPTY) == first
    assert len(members(client, {})) == 2


def test_containers_continue_each_others_syncs_on_dynamodb(
    moto_tables: MotoTables, clock: Clock
) -> None:
    agent = make_agent(moto_tables.empty(clock), clock, sync_frame=4096)
    client = Client(agent)
    dice = Dice(1)
    stored = dice.events(40)
    store_at_once(agent, stored)
    mine = [*stored[5:], *dice.events(3)]

    learned = reconcile(client, {}, mine, before=lambda _: another_container())

    assert learned.need == {event.id for event in stored[:5]}
    assert learned.have == {event.id for event in mine[35:]}
    client.send("NEG-OPEN", "sync", {"#t": ["x", "y"], "limit": 7}, EMPTY)
    another_container()
    assert len(client.send("NEG-MSG", "sync", EMPTY)[0][2]) == len("6100000207") + 7 * 64
    gone = next(event for event in stored if event.kind == 1)
    client.send("NEG-OPEN", "sync", {"kinds": [1]}, EMPTY)
    agent.events.save(made(kind=5, pubkey=gone.pubkey, tags=[["e", gone.id]]))
    another_container()
    assert client.send("NEG-MSG", "sync", EMPTY) == [CLOSED]
    disconnect(agent, "client")
    left = [pk for pk, *_ in moto_tables.items(Table.SESSIONS)]
    assert "c#client" not in left


class TestSealedSets:
    def sync(self, connection_id: str = "c", sync_id: str = "s", order: int = 1) -> Sync:
        return Sync(connection_id, sync_id, order, (), frozenset(), START, b"", "")

    def items(self, number: int) -> SealedVector:
        return SealedVector.seal((each, bytes(32)) for each in range(number))

    def test_a_set_is_that_of_its_very_sync(self) -> None:
        sets = SealedSets()
        sets.put(self.sync(), self.items(0), START, 10)

        assert sets.get(self.sync(), START) is not None
        assert sets.get(self.sync(order=2), START) is None
        assert sets.get(self.sync(sync_id="other"), START) is None
        assert sets.get(self.sync("other"), START) is None

    def test_the_bound_is_on_all_of_them(self) -> None:
        sets = SealedSets()
        for name in "abc":
            sets.put(self.sync(name), self.items(4), START, 10)
            sets.get(self.sync("a"), START)

        assert [sets.get(self.sync(name), START) is not None for name in "abc"] == [
            True,
            False,
            True,
        ]

    def test_the_one_at_hand_is_kept_however_large(self) -> None:
        sets = SealedSets()
        sets.put(self.sync("a"), self.items(2), START, 10)
        sets.put(self.sync("b"), self.items(11), START, 10)

        assert len(sets) == 1
        assert sets.get(self.sync("b"), START) is not None

    def test_idle_and_ended_sets_are_forgotten(self) -> None:
        sets = SealedSets()
        for number, name in enumerate("abcd"):
            sets.put(self.sync(name), self.items(1), START + number, 10)

        sets.forget_idle(START)
        sets.forget_connection("b")
        sets.forget("c", "other")
        sets.forget("c", "s")

        assert [sets.get(self.sync(name), START) is not None for name in "abcd"] == [
            False, False, False, True,
        ]  # fmt: skip

    def test_one_that_was_let_go_is_made_again(self) -> None:
        agent, _ = fresh_agent(max_sync_events=10)
        store_at_once(agent, [made() for _ in range(8)])
        one, other = Side(agent, "one", {}, []), Side(agent, "other", {}, [])
        expected = one.step()
        other.step()
        assert len(SEALED) == 1

        assert one.client.send("NEG-MSG", "sync", EMPTY) == [expected]
