"""EVENT paid from a purse: who pays, how much, once; and what is said to those who cannot pay."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from farthing.agent.audit import audit
from farthing.context import Agent
from farthing.nostr.events import Event, public_key_of
from farthing.nostr.nip19 import Npub, encode
from farthing.ports.meter import Metric
from farthing.relay.moderation import rules
from farthing.store.payment import ROOM
from farthing.store.purses import MovementKind, Way
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine, StoreError, Table
from infra.costs.counting import CountingEngine
from tests.ilp.paying import dump, paid_agent, price_of
from tests.purses.filling import KEY, OTHER, fill
from tests.relay.world import ALICE, BOB, OWNER, START, Client, Clock, counts_of, make_agent, signed
from tests.store.faulty import Fault, FaultyEngine, at

CAROL = bytes([4] * 32)
NOTE = signed(content="from a purse", tags=[["t", "x"], ["p", "b" * 64]])


def left(agent: Agent, key: str = KEY) -> int:
    return agent.purses.get(key).left


def logged_in(agent: Agent, *secrets: bytes, name: str = "client") -> Client:
    client = Client(agent, name)
    for secret in secrets:
        assert client.authenticate(secret)[2] is True
    return client


def answer(client: Client, event: Event) -> tuple[bool, str]:
    _, event_id, accepted, reason = client.publish(event)
    assert event_id == event.id
    return accepted, reason


class TestWhoPays:
    def test_the_author_who_is_logged_in(self, either: Agent) -> None:
        price = price_of(either, NOTE)
        fill(either, price + 1)

        assert answer(logged_in(either, ALICE), NOTE) == (True, "")

        purse = either.purses.get(KEY)
        assert (purse.left, purse.drawn) == (1, price)
        stored = either.events.get(NOTE.id)
        assert stored is not None
        assert stored.payment == f"purse#{KEY}"
        granted, movement = sorted(either.purses.movements(KEY), key=lambda each: -len(each.kind))
        assert granted.kind is MovementKind.GRANTED
        assert (movement.kind, movement.way) == (MovementKind.DRAWN, Way.EVENT)
        assert (movement.amount, movement.detail["event_id"]) == (price, NOTE.id)
        assert counts_of(either)[Metric.REVENUE] == price
        assert audit(either).differences == []

    def test_exactly_what_is_left_suffices(self, either: Agent) -> None:
        fill(either, price_of(either, NOTE))

        assert answer(logged_in(either, ALICE), NOTE) == (True, "")

        assert left(either) == 0

    def test_one_unit_less_does_not(self, either: Agent) -> None:
        price = price_of(either, NOTE)
        fill(either, price - 1)

        accepted, reason = answer(logged_in(either, ALICE), NOTE)

        page = f"{either.settings.http_url}/purse/{encode(Npub(KEY))}"
        assert not accepted
        assert reason.startswith(f"restricted: this costs {price} (")
        assert reason.endswith(f"); fill your purse at {page}")
        assert left(either) == price - 1
        assert either.events.get(NOTE.id) is None

    def test_nobody_who_is_not_logged_in(self, either: Agent) -> None:
        price = price_of(either, NOTE)
        fill(either, price)
        before = dump(either.engine)

        accepted, reason = answer(Client(either), NOTE)

        assert not accepted
        assert reason.startswith("auth-required: ")
        assert f" {price} " in reason
        unchanged = {key: item for key, item in dump(either.engine).items() if key[0] != "sessions"}
        assert unchanged == {key: item for key, item in before.items() if key[0] != "sessions"}

    def test_a_stranger_without_a_purse_is_told_where_to_fill_one(self, agent: Agent) -> None:
        accepted, reason = answer(Client(agent), NOTE)

        assert not accepted
        assert reason.startswith("restricted: ")
        assert encode(Npub(KEY)) in reason

    def test_the_author_before_others_who_came_first(self, agent: Agent) -> None:
        fill(agent, 10**6)
        fill(agent, 10**6, OTHER)

        answer(logged_in(agent, BOB, ALICE), NOTE)

        assert left(agent, OTHER) == 10**6
        assert left(agent) < 10**6

    @pytest.mark.parametrize("first", [BOB, CAROL])
    def test_others_in_the_order_of_their_login(self, agent: Agent, first: bytes) -> None:
        second = CAROL if first == BOB else BOB
        for secret in (BOB, CAROL):
            fill(agent, 10**6, public_key_of(secret))

        answer(logged_in(agent, first, second, first), NOTE)

        assert left(agent, public_key_of(first)) < 10**6
        assert left(agent, public_key_of(second)) == 10**6

    def test_the_next_who_has_enough(self, agent: Agent) -> None:
        fill(agent, 1, public_key_of(BOB))
        fill(agent, 10**6, public_key_of(CAROL))

        assert answer(logged_in(agent, BOB, CAROL), NOTE)[0]

        assert left(agent, public_key_of(BOB)) == 1

    @pytest.mark.parametrize("kind", [1059, 9735])
    def test_the_sender_pays_for_a_gift_wrap_or_a_zap_receipt(
        self, agent: Agent, kind: int
    ) -> None:
        fill(agent, 10**6, OTHER)
        wrap = signed(CAROL, kind=kind, tags=[["p", KEY]])

        assert answer(logged_in(agent, BOB), wrap) == (True, "")

        assert left(agent, OTHER) == 10**6 - price_of(agent, wrap)
        assert audit(agent).differences == []

    def test_only_its_author_for_a_protected_event(self, agent: Agent) -> None:
        fill(agent, 10**6, OTHER)
        protected = signed(tags=[["-"]])

        assert answer(logged_in(agent, BOB), protected)[1].startswith("auth-required: ")
        both = logged_in(agent, BOB, ALICE, name="both")
        assert answer(both, protected)[1].startswith("restricted: ")
        fill(agent, 10**6)
        assert answer(both, protected) == (True, "")

        assert left(agent, OTHER) == 10**6

    def test_a_frozen_purse_pays_nothing(self, agent: Agent) -> None:
        fill(agent, 10**6)
        agent.purses.freeze(KEY)

        accepted, reason = answer(logged_in(agent, ALICE), NOTE)
        assert not accepted
        assert reason.startswith("restricted: ")
        assert reason.endswith("; your purse is frozen by the operator")  # so nobody fills it

        assert left(agent) == 10**6

    def test_no_frozen_purse_of_another_who_is_logged_in(self, agent: Agent) -> None:
        agent.purses.freeze(OTHER)

        assert "frozen" in answer(logged_in(agent, BOB), NOTE)[1]
        assert "fill your purse at" in answer(logged_in(agent, CAROL, name="carol"), NOTE)[1]

    def test_no_login_of_another_connection(self, agent: Agent) -> None:
        """A stolen connection id says nothing: the login is by the connection's own challenge."""
        fill(agent, 10**6)
        theirs = logged_in(agent, ALICE, name="theirs")
        thief = Client(agent, "thief")
        stolen = theirs.auth_event(ALICE)

        assert thief.send("AUTH", stolen.as_dict())[0][2] is False

        assert answer(thief, NOTE)[1].startswith("auth-required: ")
        agent.sessions.disconnect("theirs")
        assert answer(theirs, NOTE)[1].startswith("auth-required: ")
        assert left(agent) == 10**6


class TestWhatIsPaid:
    def test_an_event_that_is_stored_is_a_duplicate_and_free(self, either: Agent) -> None:
        fill(either, 10**6)
        client = logged_in(either, ALICE)
        answer(client, NOTE)
        after = left(either)

        for sender in (client, Client(either, "stranger"), logged_in(either, BOB, name="other")):
            accepted, reason = answer(sender, NOTE)
            assert accepted
            assert reason.startswith("duplicate: ")

        assert left(either) == after
        assert audit(either).differences == []

    def test_old_events_that_others_send_draw_nothing(self, agent: Agent) -> None:
        fill(agent, 10**6)
        profiles = [signed(kind=0, created_at=START + number) for number in range(2)]
        client = logged_in(agent, ALICE)
        for event in (*profiles, NOTE):
            answer(client, event)
        deletion = signed(kind=5, tags=[["e", NOTE.id]])
        answer(client, deletion)
        after = left(agent)
        replayer = Client(agent, "replayer")

        for event in (*profiles, NOTE, deletion):
            answer(replayer, event)
            answer(client, event)

        assert left(agent) == after
        assert audit(agent).differences == []

    def test_events_larger_than_a_packet(self, agent: Agent) -> None:
        large = signed(content="x" * 60_000)
        fill(agent, price_of(agent, large))

        assert answer(logged_in(agent, ALICE), large) == (True, "")

        assert left(agent) == 0

    def test_an_ephemeral_event_is_paid_once(self, either: Agent) -> None:
        ephemeral = signed(kind=20001)
        fill(either, 10**6)
        listener = Client(either, "listener")
        listener.send("REQ", "s", {"kinds": [20001]})
        client = logged_in(either, ALICE)

        assert answer(client, ephemeral) == (True, "")
        accepted, reason = answer(client, ephemeral)

        assert accepted
        assert reason.startswith("duplicate: ")
        assert left(either) == 10**6 - price_of(either, ephemeral)
        assert audit(either).differences == []

    def test_ephemeral_events_are_remembered_as_long_as_they_are_taken(
        self, agent: Agent, clock: Clock
    ) -> None:
        longest = agent.settings.ephemeral_past
        oldest = signed(kind=20001, created_at=agent.now - longest)
        fill(agent, 10**6)
        client = logged_in(agent, ALICE)
        assert answer(client, oldest) == (True, "")
        after = left(agent)

        clock.now += 1
        assert answer(client, oldest)[1].startswith("invalid: ")
        clock.now += 1

        assert left(agent) == after
        assert agent.engine.get(Table.LEDGER, f"drawn#{oldest.id}", "purse") is None

    def test_versions_each_and_no_older_one(self, agent: Agent) -> None:
        fill(agent, 10**6)
        client = logged_in(agent, ALICE)
        new, old = (signed(kind=0, created_at=START + number) for number in (1, 0))

        assert answer(client, new)[0]
        after = left(agent)
        assert not answer(client, old)[0]

        assert left(agent) == after
        assert audit(agent).differences == []

    def test_what_policies_refuse_draws_nothing(self, agent: Agent) -> None:
        fill(agent, 10**6)

        expired = signed(tags=[["expiration", "1"]])
        assert answer(logged_in(agent, ALICE), expired)[1].startswith("invalid: ")

        assert left(agent) == 10**6

    def test_nothing_by_the_owner_and_where_writing_is_free(self, agent: Agent) -> None:
        fill(agent, 10**6, public_key_of(OWNER))

        assert answer(logged_in(agent, OWNER), signed(OWNER))[0]

        assert left(agent, public_key_of(OWNER)) == 10**6


class TestWhatGivesRoomBack:
    def stored(self, agent: Agent, event: Event) -> Event:
        fill(agent, price_of(agent, event), event.pubkey, event.id)
        assert answer(logged_in(agent, ALICE, name=event.id[:8]), event)[0]
        return event

    def test_a_deletion_of_ones_own_is_free(self, either: Agent) -> None:
        self.stored(either, NOTE)
        deletion = signed(kind=5, tags=[["e", "f" * 64], ["e", NOTE.id]])

        assert answer(Client(either), deletion) == (True, "")

        kept = either.events.get(deletion.id)
        assert kept is not None
        assert kept.payment == ROOM.reference
        assert either.events.get(NOTE.id) is None
        assert audit(either).differences == []

    def test_so_is_one_by_address(self, agent: Agent) -> None:
        self.stored(agent, signed(kind=30023, tags=[["d", "a"]]))
        deletion = signed(kind=5, tags=[["a", f"30023:{KEY}:a"]])

        assert answer(Client(agent), deletion) == (True, "")

    @pytest.mark.parametrize("name", ["e", "a"])
    def test_one_stored_target_among_many_makes_a_deletion_free(
        self, either: Agent, name: str
    ) -> None:
        event = signed(kind=30023, tags=[["d", "a"]])
        self.stored(either, event)
        tags = [["a", f"30023:{KEY}:{n}"] for n in range(120)]
        tags += [["e", f"{n:064x}"] for n in range(120)]
        tags.append([name, event.id if name == "e" else f"30023:{KEY}:a"])

        assert answer(Client(either), signed(kind=5, tags=tags)) == (True, "")

        assert either.events.get(event.id) is None

    def test_a_newer_version_than_the_deletion_does_not_count(self, agent: Agent) -> None:
        self.stored(agent, signed(kind=30023, tags=[["d", "a"]], created_at=START + 1))
        deletion = signed(kind=5, tags=[["a", f"30023:{KEY}:a"]], created_at=START)

        assert answer(Client(agent), deletion)[1].startswith("restricted: ")

    @pytest.mark.parametrize(
        "tags",
        [[], [["e", "f" * 64]], [["e", NOTE.id]], [["a", f"30023:{KEY}:a"]],
         [["a", f"30023:{OTHER}:a"]]],
        ids=str,
    )  # fmt: skip
    def test_a_deletion_of_nothing_costs_as_any_event(self, agent: Agent, tags: Any) -> None:
        assert answer(Client(agent), signed(kind=5, tags=tags))[1].startswith("restricted: ")

    def test_so_does_one_of_somebody_elses_event(self, agent: Agent) -> None:
        self.stored(agent, NOTE)

        deletion = signed(BOB, kind=5, tags=[["e", NOTE.id]])
        assert answer(Client(agent), deletion)[1].startswith("restricted: ")

        assert agent.events.get(NOTE.id) is not None

    def test_only_the_first_deletion_of_an_event_is_free(self, agent: Agent) -> None:
        self.stored(agent, NOTE)
        for number, expected in enumerate([True, False]):
            deletion = signed(kind=5, content=str(number), tags=[["e", NOTE.id]])
            assert answer(Client(agent), deletion)[0] is expected

    def test_a_key_with_events_here_vanishes_for_free(self, agent: Agent) -> None:
        vanish = [signed(kind=62, content=str(n), tags=[["relay", "wss://x"]]) for n in range(2)]
        assert answer(Client(agent), vanish[0])[1].startswith("restricted: ")
        self.stored(agent, NOTE)

        assert answer(Client(agent), vanish[0]) == (True, "")
        assert answer(Client(agent), vanish[1])[1].startswith("restricted: ")

        assert audit(agent).differences == []

    def test_only_a_request_that_removes_something_is_free(self, agent: Agent) -> None:
        self.stored(agent, NOTE)

        def vanish(number: int, at: int) -> tuple[bool, str]:
            tags = [["relay", "ALL_RELAYS"]]
            return answer(
                Client(agent), signed(kind=62, content=str(number), tags=tags, created_at=at)
            )

        # Older than every event of the key.
        assert vanish(0, NOTE.created_at - 1)[1].startswith("restricted: ")
        assert vanish(1, NOTE.created_at) == (True, "")
        # The next request would not remove more.
        assert agent.events.get(NOTE.id) is None
        assert vanish(2, NOTE.created_at)[1].startswith("restricted: ")
        assert vanish(3, NOTE.created_at + 1)[1].startswith("restricted: ")
        self.stored(agent, signed(content="later", created_at=NOTE.created_at + 1))
        assert vanish(4, NOTE.created_at + 1) == (True, "")

    def test_a_key_that_has_only_received_gift_wraps_vanishes_for_free(self, agent: Agent) -> None:
        wrap = signed(BOB, kind=1059, tags=[["p", NOTE.pubkey]])
        agent.events.save(wrap)
        vanish = signed(kind=62, tags=[["relay", "ALL_RELAYS"]])

        assert answer(Client(agent), vanish) == (True, "")


class TestCosts:
    @pytest.fixture
    def counting(self, sqlite: SqliteEngine) -> CountingEngine:
        return CountingEngine(sqlite)

    def test_a_note_with_two_tags(self, counting: CountingEngine, clock: Clock) -> None:
        agent = paid_agent(counting, clock)
        fill(agent, 10**6)
        client = logged_in(agent, ALICE)
        rules(agent)  # whose version a process looks at twice a second
        counting.reset()

        assert answer(client, NOTE)[0]

        cost = counting.reset()
        # The connection; six postings; and event, purse and receipt at the double price.
        assert cost.write_units == 13
        assert cost.write_units <= 14
        assert (cost.round_trips, cost.read_units) == (3, 1)
        assert answer(client, signed(content="another", tags=[["t", "x"], ["p", "b" * 64]]))[0]
        second = counting.reset()  # the purse is known for a while
        assert (second.write_units, second.round_trips, second.read_units) == (13, 3, 0)

    def test_a_free_note_costs_no_look_at_any_purse(
        self, counting: CountingEngine, clock: Clock
    ) -> None:
        agent = make_agent(counting, clock)
        client = Client(agent)
        rules(agent)
        counting.reset()

        assert answer(client, NOTE)[0]

        assert counting.reset().read_units == 0

    def test_a_stranger_costs_two_looks(self, counting: CountingEngine, clock: Clock) -> None:
        client = Client(paid_agent(counting, clock))
        rules(client.agent)
        counting.reset()

        assert not answer(client, NOTE)[0]

        cost = counting.reset()
        assert (cost.write_units, cost.read_units, cost.round_trips) == (1, 2, 2)


def test_a_purse_that_others_have_emptied_is_looked_at_again(agent: Agent) -> None:
    """Two containers, each with its own memory of the purse."""
    other = Agent(agent.settings, agent.engine, agent.connections, clock=agent.clock)
    notes = [signed(content=f"{number}") for number in range(3)]
    price = price_of(agent, notes[0])
    fill(agent, 2 * price)
    here, there = logged_in(agent, ALICE, name="here"), logged_in(other, ALICE, name="there")

    assert answer(here, notes[0])[0]
    assert answer(there, notes[1])[0]
    assert answer(here, notes[2])[1].startswith("restricted: ")

    assert left(agent) == 0
    fill(agent, price, mark="more")
    assert answer(here, notes[2]) == (True, "")
    assert audit(agent).differences == []


def test_of_many_writers_as_many_succeed_as_there_is_money_for(agent: Agent) -> None:
    """64 writers on 16 connections, with enough for one."""
    notes = [signed(content=f"{number:02d}") for number in range(64)]
    price = price_of(agent, notes[0])
    fill(agent, price + price // 2)
    clients = [logged_in(agent, ALICE, name=f"c{number}") for number in range(16)]
    accepted: list[str] = []

    def write(number: int) -> None:
        for event in notes[number::16]:
            if answer(clients[number], event)[0]:
                accepted.append(event.id)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(accepted) == 1
    assert left(agent) == price // 2
    assert list(agent.events.get_many(note.id for note in notes)) == accepted
    assert audit(agent).differences == []


def test_of_many_who_send_one_event_one_pays(agent: Agent) -> None:
    fill(agent, 10**6)
    fill(agent, 10**6, OTHER)
    clients = [logged_in(agent, (ALICE, BOB)[n % 2], name=f"c{n}") for n in range(8)]
    answers: list[tuple[bool, str]] = []
    threads = [
        threading.Thread(target=lambda client=client: answers.append(answer(client, NOTE)))
        for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(accepted for accepted, _ in answers)
    assert left(agent) + left(agent, OTHER) == 2 * 10**6 - price_of(agent, NOTE)
    assert audit(agent).differences == []


EVENTS: dict[str, Callable[[int], Event]] = {
    "note": lambda number: signed(content=f"note {number}", tags=[["t", "x"]]),
    "profile": lambda number: signed(kind=0, created_at=START + number),
    "ephemeral": lambda number: signed(kind=20001, content=str(number)),
}


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("name", EVENTS)
def test_a_fault_at_any_operation_draws_once_or_not_at_all(
    either: Agent, name: str, after: bool
) -> None:
    make = EVENTS[name]
    fill(either, 10**7)
    dry = FaultyEngine(either.engine)
    client = over(either, dry)
    before = len(dry.operations)
    answer(client, make(0))
    paid = price_of(either, make(0))
    operations = len(dry.operations) - before
    assert operations >= 3
    for number in range(1, operations + 1):
        faulty = FaultyEngine(either.engine)
        client = over(either, faulty, f"client {number}")
        faulty.plan = at(len(faulty.operations) + number - 1, Fault(StoreError, after=after))
        event = make(number)

        accepted, reason = answer(client, event)

        assert accepted or reason.startswith("error: ")
        faulty.plan = lambda _, __: None
        assert answer(client, event)[0]
        paid += price_of(either, event)
        assert left(either) == 10**7 - paid
    assert audit(either).differences == []


def over(agent: Agent, engine: Engine, name: str = "dry") -> Client:
    faulty = Agent(agent.settings, engine, agent.connections, clock=agent.clock)
    return logged_in(faulty, ALICE, name=name)
