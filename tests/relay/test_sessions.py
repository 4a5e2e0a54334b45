"""Messages of one connection are handled in any order, and end as they were sent."""

import random
from dataclasses import replace
from itertools import permutations, product

import pytest

from farthing.context import Agent
from farthing.nostr.filters import Filter
from farthing.relay.changes import LIVE_CHANGES
from farthing.relay.socket_delivery import SOCKETS
from farthing.store.live_subscriptions import LiveSubscriptions
from farthing.store.memory import MemoryEngine
from farthing.store.sessions import Sessions
from farthing.store.sqlite import SqliteEngine
from farthing.store.subscriptions import (
    CHANGES,
    EVENTS,
    Subscription,
    Subscriptions,
    close_order,
    request_order,
)
from farthing.store.table import Delete, Engine, Table
from tests.relay.stepping import Flow, MirroringEngine, interleave
from tests.relay.world import START, Client, Clock, made, make_agent

LIFE, PARSED = 7500, 4096


@pytest.fixture
def mirror(engine: Engine) -> MirroringEngine:
    return MirroringEngine(engine)


@pytest.fixture
def agent(mirror: MirroringEngine, clock: Clock) -> Agent:
    return make_agent(mirror, clock)


Message = tuple[str, int]  # a verb and when it was sent


def kind_of(message: Message) -> int:
    """Each REQ of a sequence asks for a kind of its own."""
    return 1000 + message[1]


def handle(open_ones: Subscriptions, message: Message) -> None:
    verb, time = message
    if verb == "REQ":
        filters = (Filter(kinds=frozenset([kind_of(message)])),)
        open_ones.subscribe(Subscription("me", "x", request_order(time), filters), START)
    else:
        open_ones.unsubscribe("me", "x", close_order(time), START)


def live_kinds(engine: Engine, messages: list[Message]) -> set[int]:
    """Which of the messages' REQs would be sent an event now."""
    events = [made(kind=kind_of(message)) for message in messages]
    found = Subscriptions(engine, LIFE, PARSED)
    return {event.kind for event, _ in EVENTS.index.interested(found, events, found.open_at)}


def disconnect(engine: Engine) -> None:
    Sessions(engine, Subscriptions(engine, LIFE, PARSED), LIFE).disconnect("me")


def expected_kinds(sent: list[Message]) -> set[int]:
    last = sent[-1]
    return {kind_of(last)} if last[0] == "REQ" else set()


SEQUENCES = [
    [(verb, 10 * number) for number, verb in enumerate(verbs, 1)]
    for length in (2, 3, 4)
    for verbs in product(["REQ", "CLOSE"], repeat=length)
    if "REQ" in verbs
]


def sequence_name(sent: list[Message]) -> str:
    return "-".join(verb for verb, _ in sent)


def test_every_order_of_handling_ends_as_sent(sqlite: SqliteEngine) -> None:
    for sent in SEQUENCES:
        for handled in permutations(sent):
            open_ones = Subscriptions(sqlite, LIFE, PARSED)
            for message in handled:
                handle(open_ones, message)

            assert live_kinds(sqlite, sent) == expected_kinds(sent), handled
            expected_ids = {"x"} if sent[-1][0] == "REQ" else set()
            assert open_ones.ids("me") == expected_ids, handled
            _start_anew(sqlite)


def _start_anew(engine: Engine) -> None:
    disconnect(engine)
    engine.write(Delete(Table.SESSIONS, "s#me#x", "s"))


def test_the_latest_message_wins_in_any_order_on_dynamodb(mirror: MirroringEngine) -> None:
    sent = [("REQ", 10), ("CLOSE", 20), ("REQ", 30)]
    for handled in permutations(sent):
        open_ones = Subscriptions(mirror, LIFE, PARSED)
        for message in handled:
            handle(open_ones, message)

        assert live_kinds(mirror, sent) == {kind_of(sent[-1])}
        disconnect(mirror)
        assert mirror.sessions == set()


@pytest.mark.parametrize("handled", list(permutations([("REQ", 10), ("CLOSE", 10)])))
def test_a_close_beats_a_req_of_the_same_millisecond(sqlite, handled) -> None:
    open_ones = Subscriptions(sqlite, LIFE, PARSED)
    for message in handled:
        handle(open_ones, message)

    assert live_kinds(sqlite, list(handled)) == set()


@pytest.mark.parametrize("sent", SEQUENCES[4:20], ids=sequence_name)
def test_handled_side_by_side_they_end_as_sent(sqlite: SqliteEngine, sent) -> None:
    mirror = MirroringEngine(sqlite)
    for seed in range(12):
        flows: list[Flow] = [
            lambda engine, message=message: handle(Subscriptions(engine, LIFE, PARSED), message)
            for message in sent
        ]

        interleave(mirror, flows, seed, shuffle=False)

        assert live_kinds(mirror, sent) == expected_kinds(sent), seed
        disconnect(mirror)
        # Only the memory of a CLOSE may be left, which expires soon; no entry leaks.
        assert mirror.sessions <= {("s#me#x", "s")}, seed
        _start_anew(mirror)


@pytest.mark.parametrize("sent", SEQUENCES[4:20], ids=sequence_name)
def test_whatever_goes_side_by_side_within_each(sqlite: SqliteEngine, sent) -> None:
    for seed in range(12):
        flows: list[Flow] = [
            lambda engine, message=message: handle(Subscriptions(engine, LIFE, PARSED), message)
            for message in sent
        ]

        interleave(sqlite, flows, seed, shuffle=True)

        assert live_kinds(sqlite, sent) == expected_kinds(sent), seed
        disconnect(sqlite)
        assert live_kinds(sqlite, sent) == set(), seed
        _start_anew(sqlite)


class TestThroughFrames:
    def test_a_req_that_comes_after_its_close_is_not_answered(self, client: Client) -> None:
        assert client.send("CLOSE", "x", time_ms=2000) == []
        assert client.send("REQ", "x", {}, time_ms=1000) == []
        assert client.agent.subscriptions.ids(client.id) == set()

    def test_a_req_that_was_replaced_before_it_came_does_not_close_its_successor(
        self, client: Client
    ) -> None:
        assert client.send("REQ", "x", {"kinds": [2]}, time_ms=2000) == [["EOSE", "x"]]
        assert client.send("REQ", "x", {"kinds": [1]}, time_ms=1000) == []

        events = [made(kind=1), made(kind=2)]
        interested = list(SOCKETS.wanting(client.agent, events))
        assert [event.kind for event, _ in interested] == [2]

    def test_a_refused_req_leaves_a_later_one_alone(self, client: Client) -> None:
        client.send("REQ", "x", {}, time_ms=2000)

        assert client.send("REQ", "x", {"kinds": [4]}, time_ms=1000) == []
        assert client.agent.subscriptions.ids(client.id) == {"x"}


class TestLeaks:
    def test_nothing_is_left_after_a_disconnect(self, agent: Agent, mirror) -> None:
        client = Client(agent, greeted=False)
        client.send("REQ", "a", {"kinds": [1, 2], "limit": 0}, {"authors": ["a" * 64]})
        client.send("REQ", "b", {"#t": ["x", "y" * 300]})
        client.send("REQ", "b", {"ids": ["b" * 64]})
        client.send("REQ", "#", {})
        assert len(mirror.sessions) > 8

        agent.sessions.disconnect(client.id)

        assert mirror.sessions == set()

    def test_a_replaced_subscription_leaves_no_entries(self, agent: Agent, mirror) -> None:
        client = Client(agent)
        client.send("REQ", "x", {"kinds": [1]})
        before = set(mirror.sessions)
        client.send("REQ", "x", {"kinds": [2, 3, 4, 5]})

        client.send("REQ", "x", {"kinds": [1]})

        assert len(mirror.sessions) == len(before)

    def test_a_close_is_remembered_for_a_minute(self, sqlite, clock: Clock) -> None:
        Subscriptions(sqlite, LIFE, PARSED).unsubscribe("me", "x", close_order(20), START)
        clock.now = START + 61

        assert sqlite.purge_expired() == 1

    def test_the_rest_expires_with_the_connection(self, agent: Agent, clock: Clock) -> None:
        Client(agent).send("REQ", "x", {})
        event = made()
        assert len(list(SOCKETS.wanting(agent, [event]))) == 1

        clock.now += agent.settings.connection_seconds

        assert list(SOCKETS.wanting(agent, [event])) == []
        assert agent.sessions.get("client") is None


class TestInMemory:
    """On one machine, where the messages of a connection are handled in order."""

    @pytest.mark.parametrize("seed", range(30))
    def test_as_in_the_store(self, sqlite: SqliteEngine, seed: int) -> None:
        stored = Subscriptions(sqlite, LIFE, PARSED, stream_end=lambda: 9)
        memory = MemoryEngine()
        in_memory = LiveSubscriptions(memory, PARSED, lambda: 9)
        dice, seen = random.Random(seed), list[Subscription]()
        for time in range(60):
            place = f"c{dice.randrange(3)}", f"s{dice.randrange(3)}"
            verb = dice.choice(["REQ", "REQ", "CLOSE", "change form", "disconnect"])
            if verb == "REQ":
                filters = [Filter(kinds=frozenset([dice.randrange(5)]))] * dice.randrange(3)
                feed = dice.choice([EVENTS, CHANGES])
                order = request_order(time)
                form = dice.choice(["", "form", "kept"])
                seen.append(Subscription(*place, order, filters, feed, form))
            for open_ones, engine in ((stored, sqlite), (in_memory, memory)):
                if verb == "REQ":
                    assert open_ones.subscribe(seen[-1], START) == seen[-1].order
                elif verb == "CLOSE":
                    assert open_ones.unsubscribe(*place, close_order(time), START)
                elif verb == "change form":
                    open_ones.change_form(place[0], "changed", but="kept")
                else:
                    Sessions(engine, open_ones, LIFE).disconnect(place[0])
            assert what_is_open(in_memory, seen) == what_is_open(stored, seen), time

    def test_nothing_is_left_after_a_disconnect(self, sqlite: SqliteEngine) -> None:
        agent = replace(make_agent(sqlite, Clock()), alone=True, in_order=True)
        client = Client(agent, greeted=False)
        for filter in ({"kinds": [1, 2]}, {"#t": ["x"]}, {"#t": ["x", "y"]}):
            client.send("REQ", "a", filter)
        client.send("CHANGES", "live", {"live": True})
        (event,) = events = [made(tags=[["t", "y"]])]
        assert len(SOCKETS.wanting(agent, events)) == len(LIVE_CHANGES.wanting(agent, events)) == 1

        agent.sessions.disconnect(client.id)

        for destination in (SOCKETS, LIVE_CHANGES):
            assert destination.candidates(agent, [event]) == [(event, [])]
        assert LIVE_CHANGES.is_unused(agent)
        assert agent.subscriptions.ids(client.id) == set()
        assert agent.engine.get(Table.SESSIONS, "s#client#live", "cursor#10") is None


def what_is_open(open_ones: Subscriptions, seen: list[Subscription]) -> object:
    """All that can be asked of subscriptions."""
    events = [made(kind=kind) for kind in range(5)]
    return (
        [open_ones.sizes(f"c{number}") for number in range(3)],
        [open_ones.is_open(each) for each in seen],
        {
            (feed.name, event.kind, each.place, each.after, each.form, str(list(each.filters)))
            for feed in (EVENTS, CHANGES)
            for event, each in feed.index.interested(open_ones, events, open_ones.open_at)
        },
        open_ones.is_unused(CHANGES.index),
    )
