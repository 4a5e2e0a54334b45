"""New events reach every subscription that wants them, and nobody who must not see them."""

import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from farthing.context import Agent
from farthing.nostr.events import Event, public_key_of
from farthing.nostr.filters import parse_filter
from farthing.ports.connections import Delivery
from farthing.ports.meter import Metric
from farthing.relay.fan_out import fan_out
from farthing.relay.socket_delivery import SOCKETS
from farthing.store.live_subscriptions import LiveSubscriptions
from farthing.store.sessions import Sessions
from farthing.store.sqlite import SqliteEngine
from farthing.store.subscriptions import (
    EVENTS,
    ParsedFilters,
    Subscription,
    Subscriptions,
    parsed_bytes,
)
from farthing.store.table import Engine
from tests.nostr.naive import naive_match
from tests.relay.random_worlds import World
from tests.relay.world import (
    ALICE,
    BOB,
    OWNER,
    START,
    Client,
    Clock,
    MotoTables,
    connections_of,
    counts_of,
    made,
    signed,
)

Place = tuple[str, str]


def fuzz(
    engine: Engine, open_ones: Subscriptions, seed: int, subscriptions: int, batches: int
) -> int:
    """Compare the index with a loop over all subscriptions; how many deliveries there were."""
    world = World(seed, 30)
    dice = random.Random(seed)
    opened: dict[Place, list[dict[str, Any]]] = {}
    for order in range(subscriptions):
        place = (f"c{order % 5}", f"s{dice.randint(0, subscriptions // 5)}")
        filters = world.filters()
        parsed = [parse_filter(filter) for filter in filters]
        open_ones.subscribe(Subscription(*place, 2 * order, parsed), START)
        opened[place] = filters
        if dice.random() < 0.15:
            place = dice.choice(list(opened))
            del opened[place]
            open_ones.unsubscribe(*place, 2 * order + 1, START)
    if subscriptions > 10:
        Sessions(engine, open_ones, 7500).disconnect("c3")
        opened = {place: filters for place, filters in opened.items() if place[0] != "c3"}
    total = 0
    for _ in range(batches):
        events = dice.sample(list(dict.fromkeys(world.events())), dice.randint(1, 5))
        expected = {
            (event, place)
            for event in events
            for place, filters in opened.items()
            if any(naive_match(event.as_dict(), filter) for filter in filters)
        }

        interested = EVENTS.index.interested(open_ones, events, open_ones.open_at)
        found = [(event, (each.connection_id, each.id)) for event, each in interested]

        assert len(found) == len(set(found)), "each once"
        assert set(found) == expected
        total += len(found)
    return total


def in_store(engine: Engine) -> Subscriptions:
    return Subscriptions(engine, 7500, 4096)


def in_memory(engine: Engine) -> Subscriptions:
    return LiveSubscriptions(engine, 4096)


@pytest.mark.parametrize("make", [in_store, in_memory])
def test_finds_what_a_loop_over_all_finds(
    tmp_path, make: Callable[[Engine], Subscriptions]
) -> None:
    delivered = 0
    for seed in range(25):
        engine = SqliteEngine(tmp_path / str(seed), clock=Clock())
        delivered += fuzz(engine, make(engine), seed, subscriptions=40, batches=15)
        engine.close()
    assert delivered > 5_000


def test_finds_the_same_on_dynamodb(moto_tables: MotoTables) -> None:
    engine = moto_tables.empty(Clock())
    assert fuzz(engine, in_store(engine), seed=1, subscriptions=12, batches=8) > 0


def test_a_filter_is_found_under_a_key_that_its_events_carry() -> None:
    matched = 0
    for seed in range(40):
        world = World(seed, 20)
        events = world.events()
        for _ in range(50):
            filter = parse_filter(world.filter())
            keys = set(EVENTS.index.filter_keys(filter))
            for event in filter_matches(filter, events):
                assert keys & set(EVENTS.index.event_keys(event))
                matched += 1
    assert matched > 5_000


def filter_matches(filter: Any, events: list[Event]) -> list[Event]:
    return [event for event in events if filter.matches(event)]


@pytest.mark.parametrize(
    ("filter", "keys"),
    [
        ({}, ["i#*"]),
        ({"since": 5, "limit": 3}, ["i#*"]),
        ({"kinds": [2, 1]}, ["i#k#1", "i#k#2"]),
        ({"kinds": [1], "authors": ["a" * 64]}, [f"i#p#{'a' * 64}"]),
        ({"authors": ["a" * 64, "b" * 64], "#t": ["x"]}, ["i#t#t#=x"]),
        ({"ids": ["a" * 64], "#t": ["x"]}, [f"i#id#{'a' * 64}"]),
        ({"ids": []}, []),
        ({"authors": ["a" * 64], "#t": []}, []),
    ],
)
def test_a_filter_is_indexed_under_its_most_selective_field(
    filter: dict[str, Any], keys: list[str]
) -> None:
    assert EVENTS.index.filter_keys(parse_filter(filter)) == keys


class TestParsedFilters:
    @pytest.mark.parametrize(
        "make",
        [
            lambda number: {"kinds": [1, 7], "#t": [f"x{number}"], "limit": 10},
            lambda number: {"ids": [f"{number:064x}"]},
            lambda number: {"#t": [str(1000 * number + each) for each in range(1000)]},
            lambda number: {"kinds": [(number + each) % 65535 for each in range(1000)]},
            lambda number: {"authors": [f"{100 * number + each:064x}" for each in range(100)]},
        ],
        ids=["small", "an id", "short tags", "kinds", "authors"],
    )
    def test_no_filter_needs_more_memory_than_estimated(
        self, make: Callable[[int], dict[str, Any]]
    ) -> None:
        kept = ParsedFilters(most=1 << 30)
        texts = [f"[{json.dumps(make(number))}]" for number in range(100)]
        tracemalloc.start()

        for text in texts:
            kept.of(EVENTS, text)

        needed, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert needed <= sum(map(parsed_bytes, texts))

    def test_a_filter_is_parsed_once(self) -> None:
        """Whatever its size, as long as there is room."""
        parsed: list[object] = []
        feed = replace(EVENTS, parse=lambda value: parsed.append(value) or parse_filter(value))
        kept = ParsedFilters(most=1_000_000)
        text = '[{"#t":["' + "x" * 50_000 + '"]}]'

        assert kept.of(feed, text) is kept.of(feed, text)
        assert len(parsed) == 1

    def test_their_memory_has_a_bound(self) -> None:
        kept = ParsedFilters(most=10_000)
        texts = [f'[{{"kinds":[{number}]}}]' for number in range(200)]

        for text in texts:
            kept.of(EVENTS, text)
        recent = kept.of(EVENTS, texts[-1])
        kept.of(EVENTS, '[{"#t":["' + "x" * 20_000 + '"]}]')

        assert len(kept) == 10_000 // parsed_bytes(texts[-1])
        assert kept.of(EVENTS, texts[-1]) is recent


class TestDelivery:
    def taken(self, agent: Agent, connection_id: str) -> list[tuple[str, str]]:
        frames = connections_of(agent).take(connection_id)
        assert all(frame[0] == "EVENT" for frame in frames)
        return [(id, event["id"]) for _, id, event in frames]

    def test_each_matching_subscription_gets_an_event_once(self, agent: Agent) -> None:
        one, other = Client(agent, "one"), Client(agent, "other")
        one.send("REQ", "a", {"kinds": [1]}, {"authors": [public_key_of(ALICE)]})
        one.send("REQ", "b", {"kinds": [1]})
        other.send("REQ", "a", {"kinds": [7]})
        event = signed()

        fan_out(agent, [event])

        assert sorted(self.taken(agent, "one")) == [("a", event.id), ("b", event.id)]
        assert self.taken(agent, "other") == []
        assert counts_of(agent)[Metric.EVENTS_DELIVERED] == 2

    def test_several_events_in_their_order(self, agent: Agent) -> None:
        Client(agent, "one").send("REQ", "a", {"kinds": [1]})
        events = [made(created_at=START + number) for number in range(5)]

        fan_out(agent, events)

        assert self.taken(agent, "one") == [("a", event.id) for event in events]

    def test_frames_that_cannot_fail_alone_are_posted_by_one_call(
        self, agent: Agent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connections = connections_of(agent)
        for name in ("one", "left"):
            Client(agent, name).send("REQ", "a", {"kinds": [1]})
        events = [made(created_at=START + number) for number in range(5)]
        calls = []
        post_each = connections.post_each
        monkeypatch.setattr(connections, "frames_fail_alone", False)
        monkeypatch.setattr(
            connections, "post_each", lambda frames: calls.append(1) or post_each(frames)
        )
        connections.fate["left"] = Delivery.GONE

        fan_out(agent, events)

        assert len(calls) == 1
        assert self.taken(agent, "one") == [("a", event.id) for event in events]
        assert counts_of(agent)[Metric.EVENTS_DELIVERED] == 5
        assert agent.sessions.get("left") is None

    def test_the_limit_is_for_what_is_stored(self, agent: Agent) -> None:
        Client(agent, "one").send("REQ", "a", {"limit": 0})

        fan_out(agent, [made(), made()])

        assert len(self.taken(agent, "one")) == 2

    def test_what_was_stored_before_the_request_is_not_new(self, agent: Agent) -> None:
        agent = replace(agent, stream_end=lambda: 7)
        Client(agent, "one").send("REQ", "a", {"limit": 0})
        before, after, unplaced = made(), made(), made()

        fan_out(agent, [before, after, unplaced], positions={before.id: 7, after.id: 8})

        assert self.taken(agent, "one") == [("a", after.id), ("a", unplaced.id)]

    def test_a_search_gets_what_its_index_may_not_have_yet(self, agent: Agent) -> None:
        open_ones = Subscriptions(agent.engine, 7500, 4096, stream_end=lambda: 7)
        plain, search = parse_filter({}), parse_filter({"search": "x"}, may_search=True)
        opened = [
            Subscription("c", "plain", 2, [plain]),
            Subscription("c", "search", 2, [plain, search]),
        ]
        for each in opened:
            open_ones.subscribe(each, START)

        found = open_ones.open_at([each.place for each in opened])

        assert [found[each.place].after for each in opened] == [7, 0]

    def test_without_events_or_subscribers_nothing_is_counted(self, agent: Agent) -> None:
        fan_out(agent, [])
        fan_out(agent, [made()])

        assert counts_of(agent) == {}

    def test_the_frame_is_the_event_as_published(self, agent: Agent) -> None:
        Client(agent, "one").send("REQ", 'a"b', {})
        event = signed(content='"\\\n😀')

        fan_out(agent, [event])

        ((_, id, sent),) = connections_of(agent).take("one")
        assert (id, sent["content"], sent["sig"]) == ('a"b', event.content, event.sig)


class TestPrivate:
    @pytest.mark.parametrize("kind", [4, 1059])
    def test_only_to_those_they_name(self, agent: Agent, kind: int) -> None:
        for name, keys in {
            "nobody": [],
            "stranger": [OWNER],
            "author": [ALICE],
            "recipient": [BOB],
            "both": [OWNER, BOB],
        }.items():
            client = Client(agent, name)
            for key in keys:
                client.authenticate(key)
            client.send("REQ", "x", {"#p": [public_key_of(BOB)]}, {})

        fan_out(agent, [signed(ALICE, kind=kind, tags=[["p", public_key_of(BOB)]])])

        reached = {connection_id for connection_id, _ in connections_of(agent).posted}
        assert reached == {"author", "recipient", "both"}

    def test_a_client_gets_private_events_from_its_authentication_on(self, agent: Agent) -> None:
        client = Client(agent, "one")
        client.send("REQ", "x", {})
        letters = [
            signed(kind=4, content=str(number), tags=[["p", public_key_of(BOB)]])
            for number in range(2)
        ]
        fan_out(agent, letters[:1])
        client.authenticate(BOB)

        fan_out(agent, letters[1:])

        assert [frame[2]["id"] for frame in connections_of(agent).take("one")] == [letters[1].id]


class TestTroubledClients:
    @pytest.fixture
    def trouble(self, agent: Agent) -> Callable[[Delivery], None]:
        for name in ("well", "ill"):
            Client(agent, name).send("REQ", "x", {})

        def cause(delivery: Delivery) -> None:
            connections_of(agent).fate["ill"] = delivery
            fan_out(agent, [made()])
            assert len(connections_of(agent).take("well")) == 1

        return cause

    def live(self, agent: Agent) -> set[str]:
        return {each.connection_id for _, each in SOCKETS.wanting(agent, [made()])}

    def test_gone_is_forgotten_at_once(self, agent: Agent, trouble) -> None:
        trouble(Delivery.GONE)

        assert self.live(agent) == {"well"}
        assert agent.sessions.get("ill") is None
        assert counts_of(agent)[Metric.CONNECTIONS_FORGOTTEN] == 1

    def test_a_slow_client_is_disconnected(self, agent: Agent, trouble) -> None:
        trouble(Delivery.SLOW)

        assert connections_of(agent).closed == ["ill"]
        assert counts_of(agent)[Metric.CLIENTS_TOO_SLOW] == 1

    def test_too_large_is_only_counted(self, agent: Agent, trouble) -> None:
        trouble(Delivery.TOO_LARGE)

        assert self.live(agent) == {"well", "ill"}
        assert connections_of(agent).closed == []
        assert counts_of(agent)[Metric.FRAMES_TOO_LARGE] == 1
