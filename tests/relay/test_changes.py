"""CHANGES without `live`: what is asked for, what is answered, and how far (NIP-CF)."""

from collections.abc import Callable
from typing import Any

import pytest

from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.ports.connections import Delivery
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import StoreError
from tests.relay.numbered import Feed, ask, follow
from tests.relay.world import (
    ALICE,
    BOB,
    OWNER,
    START,
    Client,
    Clock,
    connections_of,
    made,
    make_agent,
    signed,
)
from tests.store.faulty import FaultyEngine

A, B, C = (letter * 64 for letter in "abc")


@pytest.fixture
def feed(agent: Agent) -> Feed:
    return Feed(agent)


class TestAnswers:
    def test_an_empty_log_answers_eose_0(self, client: Client) -> None:
        assert client.send("CHANGES", "s", {}) == [["CHANGES", "s", "EOSE", 0]]

    def test_events_come_in_the_order_of_their_numbers(self, feed: Feed, client: Client) -> None:
        events = [signed(content=str(number), created_at=START - number) for number in range(3)]
        feed.add(*events)

        frames = client.send("CHANGES", "s", {})

        assert frames == [
            *(["CHANGES", "s", "EVENT", number, event.as_dict() | {"tags": []}]
              for number, event in enumerate(events, 1)),
            ["CHANGES", "s", "EOSE", 3],
        ]  # fmt: skip

    def test_since_is_exclusive(self, feed: Feed, client: Client) -> None:
        feed.add(*(made() for _ in range(4)))

        assert ask(client, {"since": 2}).numbers == [3, 4]
        assert ask(client, {"since": 4}) == ([], 4, None)

    def test_a_since_above_the_last_number_gives_no_events(
        self, feed: Feed, client: Client
    ) -> None:
        feed.add(made())

        assert ask(client, {"since": 10**9}) == ([], 1, None)

    def test_the_maximum_also_where_nothing_matches(self, feed: Feed, client: Client) -> None:
        feed.add(made(), made())

        assert ask(client, {"kinds": [7]}) == ([], 2, None)

    def test_what_is_stored_and_not_numbered_is_not_there(self, feed: Feed, client: Client) -> None:
        feed.store(made())

        assert ask(client, {}) == ([], 0, None)

    def test_deleted_and_replaced_ones_are_skipped(self, feed: Feed, client: Client) -> None:
        note = made(pubkey=A)
        feed.add(note, made(kind=0, pubkey=A, created_at=START), made(pubkey=B))
        feed.add(made(kind=0, pubkey=A, created_at=START + 1))
        feed.add(made(kind=5, pubkey=A, tags=[["e", note.id]]))

        assert ask(client, {}).numbers == [3, 4, 5]

    def test_expired_ones_are_skipped(self, feed: Feed, client: Client, clock: Clock) -> None:
        feed.add(made(tags=[["expiration", str(START + 5)]]), made())
        clock.now += 10

        assert ask(client, {}).numbers == [2]

    @pytest.mark.parametrize(
        ("filter", "numbers"),
        [
            ({"kinds": [1]}, [1, 3]),
            ({"kinds": [7, 1]}, [1, 2, 3]),
            ({"kinds": []}, []),
            ({"authors": [B]}, [2, 3]),
            ({"authors": [A, B]}, [1, 2, 3]),
            ({"authors": [f"{number:064x}" for number in range(150)] + [B]}, [2, 3]),
            ({"authors": []}, []),
            ({"authors": [B], "kinds": [1]}, [3]),
            ({"authors": [B], "since": 2}, [3]),
            ({"#t": ["x"]}, [1, 4]),
            ({"#t": ["x", "y"]}, [1, 3, 4]),
            ({"#t": ["x"], "#p": [A]}, [4]),
            ({"#t": ["x"], "authors": [A]}, [1]),
            ({"#t": ["z"]}, []),
        ],
    )
    def test_only_changes_that_match_the_filter_are_sent(
        self, feed: Feed, client: Client, filter: dict[str, Any], numbers: list[int]
    ) -> None:
        feed.add(
            made(pubkey=A, tags=[["t", "x"]]),
            made(pubkey=B, kind=7),
            made(pubkey=B, tags=[["t", "y"]]),
            made(pubkey=C, kind=30000, tags=[["t", "x"], ["p", A]]),
        )

        assert ask(client, filter) == ([(n, feed.entries()[n - 1].id) for n in numbers], 4, None)


class TestLimit:
    @pytest.fixture
    def agent(self, agent_with: Callable[..., Agent]) -> Agent:
        return agent_with()

    @pytest.fixture(autouse=True)
    def ten(self, feed: Feed) -> None:
        """Ten events, every third of kind 7."""
        feed.add(*(made(kind=7 if number % 3 == 0 else 1) for number in range(1, 11)))

    @pytest.mark.parametrize(
        ("filter", "numbers", "behind"),
        [
            ({"limit": 4}, [1, 2, 3, 4], 4),
            ({"limit": 4, "since": 4}, [5, 6, 7, 8], 8),
            ({"limit": 4, "since": 8}, [9, 10], None),
            ({"limit": 10}, list(range(1, 11)), None),
            ({"limit": 9}, list(range(1, 10)), 9),
            ({"limit": 2, "kinds": [7]}, [3, 6], 6),
            ({"limit": 3, "kinds": [7]}, [3, 6, 9], None),
            ({"limit": 0}, [], 0),
            ({"limit": 0, "since": 4}, [], 4),
            ({"limit": 0, "since": 10}, [], None),
            ({"limit": 0, "kinds": [9]}, [], None),
        ],
    )
    def test_a_truncated_answer_says_where_to_go_on(
        self, client: Client, filter: dict[str, Any], numbers: list[int], behind: int | None
    ) -> None:
        page = ask(client, filter)

        assert (page.numbers, page.last, page.next) == (numbers, 10, behind)

    def test_next_is_the_last_number_sent(self, feed: Feed, client: Client) -> None:
        """Also where the limit is reached long before the next match."""
        feed.add(*(made() for _ in range(300)), made(kind=7))

        page = ask(client, {"kinds": [7], "limit": 3})

        assert (page.numbers, page.last, page.next) == ([3, 6, 9], 311, 9)
        assert ask(client, {"kinds": [7], "limit": 3, "since": 9}) == (
            [(311, feed.entries(310)[0].id)], 311, None,
        )  # fmt: skip

    def test_limits_are_cut_to_the_relays_own(self, agent_with: Callable[..., Agent]) -> None:
        page = ask(Client(agent_with(max_limit=3)), {"limit": 1000})

        assert (page.numbers, page.next) == ([1, 2, 3], 3)


class TestBudgets:
    """An answer that would take too long is cut where it has come to, matches or not."""

    def test_an_answer_ends_when_it_has_read_its_most_entries(
        self, agent_with: Callable[..., Agent]
    ) -> None:
        agent = agent_with(max_scan=100)
        Feed(agent).add(*(made() for _ in range(250)), made(kind=7))
        client = Client(agent)

        page = ask(client, {"kinds": [7]})

        assert (page.numbers, page.last, page.next) == ([], 251, 100)
        assert [number for number, _ in follow(client, {"kinds": [7]})] == [251]

    def test_an_answer_ends_when_its_time_is_over(
        self, agent_with: Callable[..., Agent], clock: Clock
    ) -> None:
        agent = agent_with(changes_seconds=20)
        Feed(agent).add(*(made() for _ in range(250)))
        client = Client(agent)

        def pass_time() -> None:
            clock.now += 0.15

        connections_of(agent).before_post = pass_time

        page = ask(client, {})

        assert (page.numbers, page.last, page.next) == (list(range(1, 201)), 250, 200)
        assert len(follow(client, {})) == 250

    def test_not_where_it_has_come_to_the_end(self, agent_with: Callable[..., Agent]) -> None:
        agent = agent_with(max_scan=100, changes_seconds=0)
        Feed(agent).add(*(made() for _ in range(100)))

        assert ask(Client(agent), {}).next is None


class TestErrors:
    @pytest.mark.parametrize(
        "parts",
        [(), ({}, {}), ("x",), ({"unknown": 1},), ({"ids": [A]},), ({"until": 3},),
         ({"since": -1},), ({"limit": None},), ({"live": 1},), ({"kinds": "1"},), (None,)],
    )  # fmt: skip
    def test_an_invalid_filter_is_an_error(self, client: Client, parts: tuple[Any, ...]) -> None:
        answer = [["CHANGES", "s", "ERR", "invalid filter"]]
        assert client.send("CHANGES", "s", *parts) == answer

    def test_too_many_values_are_an_error(self, agent_with: Callable[..., Agent]) -> None:
        client = Client(agent_with(max_filter_values=3))

        assert ask(client, {"kinds": [1, 2, 3]}).last == 0
        assert client.send("CHANGES", "s", {"kinds": [1, 2], "authors": [A, B]}) == [
            ["CHANGES", "s", "ERR", "invalid filter"]
        ]

    @pytest.mark.parametrize("id", ["", "x" * 65])
    def test_an_invalid_subscription_id_is_an_error(self, client: Client, id: str) -> None:
        assert client.send("CHANGES", id, {}) == [["CHANGES", id, "ERR", "invalid subscription id"]]

    def test_no_subscription_id_at_all(self, client: Client) -> None:
        ((verb, reason),) = client.send("CHANGES")
        assert (verb, reason.split(":")[0]) == ("NOTICE", "invalid")

    def test_too_many_live_subscriptions_are_an_error(
        self, agent_with: Callable[..., Agent]
    ) -> None:
        agent = agent_with(max_subscriptions=2)
        client = Client(agent)
        client.send("REQ", "one", {})
        client.send("CHANGES", "two", {"live": True})

        assert client.send("CHANGES", "three", {"live": True}) == [
            ["CHANGES", "three", "ERR", "too many subscriptions"]
        ]
        assert agent.subscriptions.ids("client") == {"one", "two"}
        assert ask(client, {}, "three").last == 0  # which opens nothing
        assert client.send("CHANGES", "two", {"live": True}) == [["CHANGES", "two", "EOSE", 0]]

    @pytest.mark.parametrize("live", [True, False])
    def test_a_message_above_the_rate_is_an_error(
        self, agent_with: Callable[..., Agent], live: bool
    ) -> None:
        agent = agent_with(requests_per_second=1, request_burst=2)
        client = Client(agent)
        client.send("CLOSE", "x")

        ((*head, reason),) = client.send("CHANGES", "s", {"live": live})

        assert head == ["CHANGES", "s", "ERR"]
        assert reason.startswith("rate-limited: ")
        assert agent.subscriptions.ids("client") == set()

    def test_a_failing_store_ends_the_answer_with_an_error(
        self, sqlite: SqliteEngine, clock: Clock
    ) -> None:
        engine = FaultyEngine(sqlite)
        agent = make_agent(engine, clock)
        client = Client(agent)

        def fail() -> None:
            raise StoreError

        Feed(agent).add(made())
        connections_of(agent).before_post = fail

        ((*head, reason),) = client.send("CHANGES", "s", {"live": True})

        assert head == ["CHANGES", "s", "ERR"]
        assert reason == "error: internal error, try again"
        assert agent.subscriptions.ids("client") == set()


class TestPrivate:
    @pytest.mark.parametrize("kind", [4, 1059])
    def test_only_for_those_they_name(self, feed: Feed, agent: Agent, kind: int) -> None:
        letter = signed(ALICE, kind=kind, tags=[["p", public_key_of(BOB)]])
        feed.add(made(), letter, made())
        seen = {}
        for name, keys in {"nobody": [], "other": [OWNER], "author": [ALICE], "to": [BOB]}.items():
            client = Client(agent, name)
            for key in keys:
                client.authenticate(key)
            seen[name] = ask(client, {}).numbers

        assert seen == {"nobody": [1, 3], "other": [1, 3], "author": [1, 2, 3], "to": [1, 2, 3]}

    @pytest.mark.parametrize("live", [True, False])
    def test_a_request_for_private_kinds_alone_needs_authentication(
        self, client: Client, live: bool
    ) -> None:
        """An EOSE would have them go on from behind what they may not see yet."""
        ((*head, reason),) = client.send("CHANGES", "s", {"kinds": [4], "live": live})

        assert head == ["CHANGES", "s", "ERR"]
        assert reason.startswith("auth-required: ")


class TestSubscriptionIds:
    """One name space for REQ and CHANGES: the later request of an id replaces the earlier."""

    def open_ids(self, agent: Agent) -> set[str]:
        return agent.subscriptions.ids("client")

    def test_not_live_leaves_nothing_open(self, agent: Agent, client: Client) -> None:
        ask(client, {})

        assert self.open_ids(agent) == set()

    @pytest.mark.parametrize("first", [("REQ", {}), ("CHANGES", {"live": True})])
    @pytest.mark.parametrize("then", [("CHANGES", {}), ("CHANGES", {"live": 1}), ("CLOSE",)])
    def test_another_request_ends_the_open_subscription(
        self, agent: Agent, client: Client, first: tuple[Any, ...], then: tuple[Any, ...]
    ) -> None:
        """ERR as well: after it the subscription is closed."""
        verb, *filter = first
        client.send(verb, "s", *filter)
        assert self.open_ids(agent) == {"s"}

        verb, *filter = then
        client.send(verb, "s", *filter)

        assert self.open_ids(agent) == set()

    def test_a_close_that_came_first(self, agent: Agent, client: Client) -> None:
        client.send("CLOSE", "s", time_ms=START * 1000 + 50)

        assert client.send("CHANGES", "s", {}, time_ms=START * 1000 + 40) == []


class TestTroubledClients:
    @pytest.mark.parametrize("live", [True, False])
    @pytest.mark.parametrize("fate", [Delivery.GONE, Delivery.SLOW])
    def test_an_answer_to_a_lost_client_ends_without_eose(
        self, feed: Feed, agent: Agent, client: Client, live: bool, fate: Delivery
    ) -> None:
        feed.add(made(), made())
        connections_of(agent).fate["client"] = fate

        assert client.send("CHANGES", "s", {"live": live}) == []
        assert (agent.sessions.get("client") is None) == (fate is Delivery.GONE)
        assert connections_of(agent).closed == (["client"] if fate is Delivery.SLOW else [])
