"""REQ: stored events newest first, EOSE or CLOSED always, and nothing missed in between."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from farthing.context import Agent
from farthing.nostr.events import Event, public_key_of
from farthing.ports.connections import Delivery
from farthing.ports.meter import Metric
from farthing.relay.fan_out import fan_out
from farthing.relay.socket_delivery import SOCKETS
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Query, Table
from tests.relay.world import (
    ALICE,
    BOB,
    OWNER,
    START,
    Client,
    Clock,
    connections_of,
    counts_of,
    make_agent,
    signed,
)
from tests.store.faulty import FaultyEngine

AgentWith = Callable[..., Agent]


def publish(client: Client, number: int, **changes: Any) -> list[Event]:
    """Events of successive seconds, newest first."""
    events = [signed(created_at=START - each, **changes) for each in range(number)]
    for event in events:
        assert client.publish(event)[2]
    return events


def ids_of(events: Sequence[Event]) -> list[str]:
    return [event.id for event in events]


def live(agent: Agent, event: Event) -> list[str]:
    return [subscription.id for _, subscription in SOCKETS.wanting(agent, [event])]


class TestStored:
    def test_newest_first_then_eose(self, client: Client) -> None:
        events = publish(client, 5)

        answers = client.send("REQ", "x", {"kinds": [1]})

        assert [answer[0] for answer in answers] == ["EVENT"] * 5 + ["EOSE"]
        assert [answer[2]["id"] for answer in answers[:-1]] == ids_of(events)

    def test_filters_are_ored_each_with_its_limit_and_events_sent_once(self, client) -> None:
        notes, likes = publish(client, 4), publish(client, 4, kind=7)

        found = client.ids(
            {"kinds": [1], "limit": 2}, {"kinds": [7], "limit": 1}, {"ids": [notes[0].id]}
        )

        expected = sorted([*notes[:2], likes[0]], key=lambda each: (-each.created_at, each.id))
        assert found == ids_of(expected)

    def test_limit_nought_only_goes_live(self, client: Client) -> None:
        publish(client, 2)

        assert client.ids({"limit": 0}) == []
        assert live(client.agent, signed(content="new")) == ["ids"]

    def test_since_and_until_are_inclusive(self, client: Client) -> None:
        events = publish(client, 5)

        assert client.ids({"since": START - 3, "until": START - 1}) == ids_of(events[1:4])

    def test_no_limit_is_the_default_one_and_large_ones_are_cut(self, agent_with) -> None:
        client = Client(agent_with(default_limit=2, max_limit=3))
        events = publish(client, 5)

        assert client.ids({}) == ids_of(events[:2])
        assert client.ids({"limit": 5}) == ids_of(events[:3])

    def test_hundreds_go_out_in_order(self, agent_with: AgentWith) -> None:
        client = Client(agent_with())
        events = publish(client, 230)

        assert client.ids({"limit": 220}) == ids_of(events[:220])


class TestRefused:
    @pytest.mark.parametrize(
        ("settings", "filters", "reason"),
        [
            ({}, [], "invalid: expected a filter with REQ, got none"),
            ({}, [None], "invalid: filter is not an object"),
            ({}, [{}, {"since": "x"}], "invalid: since is not a whole number"),
            ({}, [{"search": "x"}], "invalid: unknown filter key 'search'"),
            ({"max_filters": 2}, [{}] * 3, "invalid: expected at most 2 filters, got 3"),
            (
                {"max_filter_values": 3},
                [{"kinds": [1, 2], "#t": ["x", "y"]}],
                "invalid: expected at most 3 values in filters, got 4",
            ),
            (
                {"max_filter_values": 3},
                [{"kinds": [1, 2]}, {"#t": ["x", "y"]}],
                "invalid: expected at most 3 values in filters, got 4",
            ),
            (
                {},
                [{}, {"kinds": [4, 1059]}],
                "auth-required: these kinds are only for those they are sent to",
            ),
        ],
    )
    def test_a_wrong_req_is_refused_with_its_reason(
        self, agent_with, settings, filters, reason: str
    ) -> None:
        client = Client(agent_with(**settings))

        assert client.send("REQ", "x", *filters) == [["CLOSED", "x", reason]]
        assert live(client.agent, signed()) == []

    def test_a_subscription_above_the_limit_is_refused(self, agent_with: AgentWith) -> None:
        client = Client(agent_with(max_subscriptions=2))
        for id in ("a", "b"):
            client.send("REQ", id, {})

        assert client.send("REQ", "c", {}) == [
            ["CLOSED", "c", "error: expected at most 2 subscriptions"]
        ]
        assert client.send("REQ", "b", {"kinds": [1]}) == [["EOSE", "b"]]  # replaces its own
        client.send("CLOSE", "a")
        assert client.send("REQ", "c", {}) == [["EOSE", "c"]]
        assert sorted(live(client.agent, signed())) == ["b", "c"]

    def test_too_many_values_that_stay(self, agent_with: AgentWith) -> None:
        client = Client(agent_with(max_live_values=5))
        kinds = [1, 2, 3]
        client.send("REQ", "a", {"kinds": kinds})

        full = [["CLOSED", "b", "error: expected at most 5 values in subscriptions"]]
        assert client.send("REQ", "b", {"kinds": kinds}) == full
        assert client.send("REQ", "a", {"kinds": [*kinds, 4]}) == [["EOSE", "a"]]  # its own go
        assert client.send("REQ", "b", {"kinds": [1], "authors": ["a" * 64]}) == [["EOSE", "b"]]
        client.send("CLOSE", "a")
        assert client.send("REQ", "c", {"kinds": kinds}) == [["EOSE", "c"]]
        assert sorted(live(client.agent, signed())) == ["c"]

    def test_filters_above_the_limit_of_bytes_are_refused(self, agent_with: AgentWith) -> None:
        """However few values they are."""
        client = Client(agent_with(max_live_bytes=1000))
        large = {"#t": ["x" * 600]}
        assert client.send("REQ", "a", large) == [["EOSE", "a"]]

        full = [["CLOSED", "b", "error: expected at most 1000 bytes of subscriptions"]]
        assert client.send("REQ", "b", large) == full
        (answer,) = client.send("CHANGES", "b", {**large, "live": True})
        assert answer == ["CHANGES", "b", "ERR", "too many subscriptions"]
        assert client.send("REQ", "a", large) == [["EOSE", "a"]]  # in its own place
        client.send("CLOSE", "a")
        assert client.send("REQ", "b", large) == [["EOSE", "b"]]

    def test_a_filter_that_reads_too_much_is_refused(self, agent_with: AgentWith) -> None:
        client = Client(agent_with(max_scan=3))
        publish(client, 5)

        filter = {"authors": [public_key_of(ALICE)], "#t": ["nowhere"]}
        (answer,) = client.send("REQ", "x", filter)

        assert answer == ["CLOSED", "x", "error: filter is too broad for its limit, narrow it"]
        assert live(client.agent, signed(tags=[["t", "nowhere"]])) == []

    @pytest.mark.parametrize("filters", [[], [{"kinds": [4]}]])
    def test_a_refused_replacement_ends_what_it_would_replace(self, client, filters) -> None:
        """CLOSED names the id: whatever came under it after that would not be understood."""
        client.send("REQ", "x", {})

        ((kind, _, _),) = client.send("REQ", "x", *filters)

        assert kind == "CLOSED"
        assert live(client.agent, signed()) == []

    @pytest.mark.parametrize(
        "frame",
        [
            '["REQ","x",{"limit":1e999}]',
            '["REQ","x",{"#t":["\\ud800"]}]',
            '["CHANGES","x",{"#t":["\\ud800"]}]',
            '["REQ","x",{}]'.ljust(1001),
            '["REQ","x",{"aether":true,"y":1}]',
            '["REQ","x",{"aether":true},{}]',
        ],
    )
    def test_so_does_one_that_cannot_be_read(self, agent_with: AgentWith, frame: str) -> None:
        client = Client(agent_with(max_message_length=1000))
        client.send("REQ", "x", {})

        ((kind, named, *_),) = client.send_frame(frame)

        assert (kind, named) in (("CLOSED", "x"), ("CHANGES", "x"))
        assert live(client.agent, signed()) == []

    def test_when_rate_limited_nothing_stays_open(self, engine, clock: Clock) -> None:
        # DynamoDB runs what goes side by side to its end, also when one part refuses.
        agent = make_agent(engine, clock, requests_per_second=1, request_burst=2)
        client = Client(agent)
        client.send("REQ", "a", {})

        (answer,) = client.send("REQ", "x", {})

        assert answer[:2] == ["CLOSED", "x"]
        assert answer[2].startswith("rate-limited: ")
        assert live(agent, signed()) == ["a"]


class TestPrivate:
    """Direct messages and gift wraps are for those they name."""

    @pytest.fixture(params=[4, 1059])
    def letter(self, request: pytest.FixtureRequest, client: Client) -> Event:
        event = signed(ALICE, kind=request.param, tags=[["p", public_key_of(BOB)]])
        client.publish(event)
        return event

    @pytest.mark.parametrize(
        ("reader", "readable"), [(None, False), (OWNER, False), (ALICE, True), (BOB, True)]
    )
    def test_only_author_and_recipient_read_a_private_event(
        self, client, letter, reader: bytes | None, readable: bool
    ) -> None:
        if reader:
            client.authenticate(reader)

        for filter in ({}, {"ids": [letter.id]}, {"#p": [public_key_of(BOB)]}):
            assert client.ids(filter) == ([letter.id] if readable else [])

    def test_they_use_up_nobody_elses_limit(self, client: Client, letter: Event) -> None:
        older = signed(created_at=START - 100)
        client.publish(older)

        assert client.ids({"limit": 1}) == [older.id]

    def test_to_ask_for_nothing_else_one_must_say_who_one_is(self, client, letter) -> None:
        ((kind, _, reason),) = client.send("REQ", "x", {"kinds": [letter.kind]})
        assert (kind, reason[:15]) == ("CLOSED", "auth-required: ")

        client.authenticate(BOB)

        assert client.ids({"kinds": [letter.kind]}) == [letter.id]


class TestClients:
    def test_one_that_is_gone_is_forgotten(self, client: Client) -> None:
        publish(client, 3)
        connections_of(client.agent).fate[client.id] = Delivery.GONE

        assert client.send("REQ", "x", {}) == []

        assert live(client.agent, signed()) == []
        assert counts_of(client.agent)[Metric.CONNECTIONS_FORGOTTEN] == 1

    def test_one_that_is_slow_is_disconnected(self, client: Client) -> None:
        publish(client, 3)
        connections_of(client.agent).fate[client.id] = Delivery.SLOW

        assert client.send("REQ", "x", {}) == []

        assert connections_of(client.agent).closed == [client.id]

    def test_what_is_too_large_is_left_out(self, client: Client) -> None:
        publish(client, 3)
        connections_of(client.agent).fate[client.id] = Delivery.TOO_LARGE

        assert client.send("REQ", "x", {}) == [["EOSE", "x"]]
        assert counts_of(client.agent)[Metric.FRAMES_TOO_LARGE] == 1


class Meanwhile(FaultyEngine):
    """An engine that lets something else happen before its n-th operation."""

    def __init__(self, inner: SqliteEngine) -> None:
        super().__init__(inner)
        self.happens: Callable[[], None] = lambda: None
        self.at = -1

    def _next(self, name: str) -> None:
        self.at -= 1
        if self.at == -1:
            self.happens()
        return super()._next(name)


class TestNothingIsMissed:
    def test_an_event_stored_at_any_moment_of_a_req(self, sqlite, clock: Clock) -> None:
        engine = Meanwhile(sqlite)
        agent, elsewhere = make_agent(engine, clock), make_agent(sqlite, clock)
        moments = self.operations(agent)
        assert moments >= 4
        for moment in range(moments + 1):
            reader, event = f"reader {moment}", signed(content=str(moment))
            streamed: list[Any] = []
            happens = partial(self.publish, elsewhere, event, reader, streamed)

            client = Client(agent, reader)
            engine.happens, engine.at = happens, moment
            answers = client.send("REQ", "x", {"kinds": [1]})
            if moment == moments:  # after the last operation
                happens()

            brought = [frame[2]["id"] for frame in [*answers, *streamed] if frame[0] == "EVENT"]
            assert event.id in brought, moment
            elsewhere.sessions.disconnect(reader)

    def publish(self, agent: Agent, event: Event, reader: str, streamed: list[Any]) -> None:
        assert Client(agent, f"writer for {reader}").publish(event)[2]
        # What the stream brings about, at once: the earliest that it can come.
        fan_out(agent, [event])
        streamed += connections_of(agent).take(reader)

    def operations(self, agent: Agent) -> int:
        client = Client(agent, "counter")
        agent.engine.operations.clear()
        client.send("REQ", "x", {"kinds": [1]})
        count = len(agent.engine.operations)
        agent.sessions.disconnect("counter")
        return count

    @pytest.mark.parametrize("on_one_machine", [False, True])
    def test_the_subscription_is_there_before_anything_is_read(
        self, sqlite, clock, on_one_machine: bool
    ) -> None:
        class Watching(FaultyEngine):
            def query_many(self, queries: Sequence[Query]) -> Any:
                if any(query.table is Table.POSTINGS for query in queries):
                    seen.append(live(elsewhere, signed()))
                return super().query_many(queries)

        seen: list[list[str]] = []
        agent = elsewhere = make_agent(Watching(sqlite), clock)
        if on_one_machine:
            agent = elsewhere = replace(agent, alone=True, in_order=True)
        else:
            elsewhere = make_agent(sqlite, clock)

        Client(agent).send("REQ", "x", {"kinds": [1]})

        assert seen == [["x"]]
