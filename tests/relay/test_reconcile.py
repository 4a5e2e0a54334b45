"""NEG-OPEN, NEG-MSG and NEG-CLOSE as a client sees them: answers, errors, and what is kept."""

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from farthing.context import Agent
from farthing.relay.connect import disconnect
from farthing.relay.sealed_sets import SEALED
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine, Query, Table, read_all
from tests.relay.syncing import EMPTY, another_container, members, reconcile, store_at_once
from tests.relay.world import ALICE, START, Client, Clock, hex_id, made, signed

ONE = made(id=hex_id(1), created_at=START)


@pytest.fixture
def engine(sqlite: SqliteEngine) -> Engine:
    """moto takes long; `test_reconcile_containers` has one story on it."""
    return sqlite


@pytest.fixture(autouse=True)
def _cold() -> Iterator[None]:
    another_container()
    yield
    another_container()


def records(agent: Agent, connection_id: str = "client") -> list[str]:
    """What is kept of a connection's syncs."""
    rows = read_all(agent.engine, Query(Table.SESSIONS, f"c#{connection_id}"))
    return [row.sk for row in rows if row.sk.startswith("n#")]


def store(agent: Agent, number: int, **changes: Any) -> list[Any]:
    events = [made(created_at=START - each, **changes) for each in range(number)]
    store_at_once(agent, events)
    return events


class TestTheWayOfASync:
    def test_empty_sets_are_reconciled_at_once(self, client: Client) -> None:
        assert client.send("NEG-OPEN", "s", {}, EMPTY) == [["NEG-MSG", "s", EMPTY]]

    def test_the_vector_of_one_item(self, agent: Agent, client: Client) -> None:
        agent.events.save(made(id="ee" * 32, created_at=12345))

        (answer,) = client.send("NEG-OPEN", "s", {}, EMPTY)

        assert answer == ["NEG-MSG", "s", "6100000201" + "ee" * 32]

    def test_messages_go_to_and_fro_until_both_know(self, agent: Agent, client: Client) -> None:
        events = store(agent, 700)
        mine = [*events[5:], *(made(created_at=START - 10 * each) for each in range(10))]

        learned = reconcile(client, {}, mine)

        assert learned.need == {event.id for event in events[:5]}
        assert learned.have == {event.id for event in mine[695:]}
        assert len(learned.replies) > 1

    def test_a_close_is_not_answered_and_ends_it(self, agent: Agent, client: Client) -> None:
        client.send("NEG-OPEN", "s", {}, EMPTY)

        assert client.send("NEG-CLOSE", "s") == []
        assert len(SEALED) == 0
        assert agent.syncs.open_ids("client") == set()
        assert client.send("NEG-MSG", "s", EMPTY) == [["NEG-ERR", "s", "CLOSED"]]

    def test_closing_an_unknown_sync_has_no_answer(self, client: Client) -> None:
        assert client.send("NEG-CLOSE", "s") == []

    def test_a_message_of_an_unknown_sync_gets_closed(self, agent: Agent, client: Client) -> None:
        assert client.send("NEG-MSG", "s", EMPTY) == [["NEG-ERR", "s", "CLOSED"]]
        assert records(agent) == []

    def test_another_connections_sync_is_unknown(self, agent: Agent, client: Client) -> None:
        client.send("NEG-OPEN", "s", {}, EMPTY)

        assert Client(agent, "other").send("NEG-MSG", "s", EMPTY) == [["NEG-ERR", "s", "CLOSED"]]

    def test_ids_are_a_name_space_of_their_own(self, agent: Agent, client: Client) -> None:
        event = signed()
        client.publish(event)
        client.send("REQ", "s", {"limit": 0})

        client.send("NEG-OPEN", "s", {}, EMPTY)
        client.send("CLOSE", "s")
        client.send("REQ", "s", {"limit": 0})
        client.send("NEG-CLOSE", "s")

        assert agent.subscriptions.ids("client") == {"s"}
        assert client.send("REQ", "s", {})[-1] == ["EOSE", "s"]

    def test_a_second_open_replaces_the_first(self, agent: Agent, client: Client) -> None:
        store(agent, 3, kind=1)
        seven = store(agent, 40, kind=7)
        client.send("NEG-OPEN", "sync", {"kinds": [1]}, EMPTY)

        assert members(client, {"kinds": [7]}) == {event.id for event in seven}
        assert len(SEALED) == 0

    def test_a_second_open_that_is_refused_ends_the_first(self, client: Client) -> None:
        client.send("NEG-OPEN", "s", {}, EMPTY)

        assert client.send("NEG-OPEN", "s", {"x": 1}, EMPTY) == [["NEG-ERR", "s", "FILTER_INVALID"]]
        assert client.send("NEG-MSG", "s", EMPTY) == [["NEG-ERR", "s", "CLOSED"]]


class TestMessagesThatOvertakeEachOther:
    """Times are those at which the gateway took the messages; they are handled as written here."""

    def at(self, client: Client, time_ms: int, *parts: Any) -> list[Any]:
        return client.send(*parts, time_ms=1000 * START + time_ms)

    def test_an_open_after_its_close_opens_nothing(self, agent: Agent, client: Client) -> None:
        assert self.at(client, 2, "NEG-CLOSE", "s") == []

        assert self.at(client, 1, "NEG-OPEN", "s", {}, EMPTY) == []
        assert agent.syncs.open_ids("client") == set()

    def test_an_open_and_its_close_of_one_millisecond(self, client: Client) -> None:
        self.at(client, 1, "NEG-CLOSE", "s")

        assert self.at(client, 1, "NEG-OPEN", "s", {}, EMPTY) == [["NEG-ERR", "s", "CLOSED"]]

    def test_an_older_open_leaves_the_newer_one_alone(self, agent: Agent, client: Client) -> None:
        agent.events.save(ONE)
        self.at(client, 2, "NEG-OPEN", "s", {"kinds": [1]}, EMPTY)

        assert self.at(client, 1, "NEG-OPEN", "s", {"kinds": [7]}, EMPTY) == []
        assert self.at(client, 1, "NEG-OPEN", "s", {"x": 1}, EMPTY) == [
            ["NEG-ERR", "s", "FILTER_INVALID"]
        ]
        (answer,) = self.at(client, 3, "NEG-MSG", "s", EMPTY)
        assert answer == ["NEG-MSG", "s", "6100000201" + ONE.id]

    def test_a_message_for_a_sync_that_was_replaced_is_not_answered(self, client: Client) -> None:
        self.at(client, 1, "NEG-OPEN", "s", {"kinds": [1]}, EMPTY)
        self.at(client, 3, "NEG-OPEN", "s", {"kinds": [7]}, EMPTY)

        assert self.at(client, 2, "NEG-MSG", "s", EMPTY) == []
        assert self.at(client, 4, "NEG-MSG", "s", EMPTY) == [["NEG-MSG", "s", EMPTY]]


class TestFiltersByEvent:
    def open(self, client: Client, event_id: str) -> Any:
        (answer,) = client.send("NEG-OPEN", "s", event_id, EMPTY)
        return answer

    def published(self, client: Client, content: str) -> str:
        event = signed(content=content, kind=30078)
        assert client.publish(event)[2]
        return event.id

    def test_the_content_is_a_filter(self, agent: Agent, client: Client) -> None:
        agent.events.save(ONE)
        event_id = self.published(client, '{"kinds":[1]}')

        assert self.open(client, event_id) == ["NEG-MSG", "s", "6100000201" + ONE.id]

    def test_the_content_is_an_array_of_filters(self, agent: Agent, client: Client) -> None:
        stored = [made(kind=kind) for kind in (1, 1, 7, 9)]
        for event in stored:
            agent.events.save(event)
        event_id = self.published(client, '[{"kinds":[1]},{"kinds":[7]},{"kinds":[1,7]}]')

        assert members(client, event_id) == {event.id for event in stored[:3]}

    def test_an_event_that_is_not_here(self, client: Client) -> None:
        assert self.open(client, hex_id(1)) == ["NEG-ERR", "s", "FILTER_NOT_FOUND"]

    def test_an_event_that_the_caller_may_not_read(self, client: Client) -> None:
        event = signed(content="{}", kind=4)
        client.publish(event)

        assert self.open(client, event.id) == ["NEG-ERR", "s", "FILTER_NOT_FOUND"]
        client.authenticate(ALICE)
        assert self.open(client, event.id)[0] == "NEG-MSG"

    @pytest.mark.parametrize("content", ["", "hello", "7", "[]", "[7]", '{"x":1}', '[{},{"x":1}]'])
    def test_contents_that_are_no_filter(self, client: Client, content: str) -> None:
        event_id = self.published(client, content)

        assert self.open(client, event_id) == ["NEG-ERR", "s", "FILTER_INVALID"]

    @pytest.mark.parametrize("given", [None, 7, "hello", "A" * 64, [], [[]], {"ids": ["x"]}])
    def test_a_wrong_filter_is_filter_invalid(self, client: Client, given: Any) -> None:
        (answer,) = client.send("NEG-OPEN", "s", given, EMPTY)

        assert answer == ["NEG-ERR", "s", "FILTER_INVALID"]

    def test_too_many_filters_or_values(self, client: Client) -> None:
        many = client.agent.settings.max_filters + 1
        broad = {"kinds": list(range(client.agent.settings.max_filter_values + 1))}

        for content in ([{}] * many, broad):
            event_id = self.published(client, orjson.dumps(content).decode())
            assert self.open(client, event_id) == ["NEG-ERR", "s", "FILTER_INVALID"]


MALFORMED = {
    "nothing": "",
    "no hex": "zz",
    "half a byte": "6",
    "white space": "61 00000200",
    "not ASCII": "ä" * 4,
    "no version": "00" * 10,
    "a version beyond all": "70000200",
    "a bound without a mode": "6100",
    "half a bound": "610105aabb",
    "an unknown mode": "61000003",
    "a prefix of 33 bytes": "610121" + "00" * 33 + "00",
    "half a fingerprint": "61000001" + "aa" * 15,
    "a list that ends early": "6100000202" + "aa" * 32,
    "a count of 2^63": "61000002" + "81" + "80" * 8 + "00",
    "a varint without end": "61" + "ff" * 11,
    "bounds out of order": "61" + "0501ff00" + "010100" + "00",
    "ranges beyond infinity": "61000000" + "000000",
}


class TestMalformedMessages:
    @pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
    def test_are_refused_at_once_and_end_the_sync(self, client: Client, text: str) -> None:
        refusal = [["NEG-ERR", "s", "CLOSED"]]
        client.send("NEG-OPEN", "s", {}, EMPTY)

        assert client.send("NEG-MSG", "s", text) == refusal
        assert client.send("NEG-MSG", "s", EMPTY) == refusal
        assert client.send("NEG-OPEN", "s", {}, text) == refusal
        assert client.agent.syncs.open_ids("client") == set()
        assert len(SEALED) == 0

    @pytest.mark.parametrize("text", [None, 7, ["61"], {}])
    def test_a_message_that_is_no_text_closes_the_sync(self, client: Client, text: Any) -> None:
        assert client.send("NEG-OPEN", "s", {}, text) == [["NEG-ERR", "s", "CLOSED"]]
        assert client.send("NEG-MSG", "s", text) == [["NEG-ERR", "s", "CLOSED"]]

    def test_another_version_is_answered_by_ours(self, client: Client) -> None:
        assert client.send("NEG-OPEN", "s", {}, "62aabbccddeeff") == [["NEG-MSG", "s", "61"]]
        assert client.send("NEG-MSG", "s", "60") == [["NEG-MSG", "s", "61"]]
        assert client.send("NEG-MSG", "s", EMPTY) == [["NEG-MSG", "s", EMPTY]]

    def test_a_missing_part_is_an_error_of_the_sync(self, client: Client) -> None:
        assert client.send("NEG-OPEN", "s") == [["NEG-ERR", "s", "FILTER_INVALID"]]
        assert client.send("NEG-OPEN", "s", {}) == [["NEG-ERR", "s", "CLOSED"]]
        assert client.send("NEG-MSG", "s") == [["NEG-ERR", "s", "CLOSED"]]
        for verb in ("NEG-OPEN", "NEG-MSG", "NEG-CLOSE"):
            assert client.send(verb)[0][0] == "NOTICE"

    @pytest.mark.parametrize("sync_id", ["", "x" * 65])
    def test_ids_that_break_the_rules(self, client: Client, sync_id: str) -> None:
        for parts in (("NEG-OPEN", sync_id, {}, EMPTY), ("NEG-MSG", sync_id, EMPTY)):
            ((kind, id, reason),) = client.send(*parts)
            assert (kind, id, reason[:8]) == ("NEG-ERR", sync_id, "invalid:")
        assert records(client.agent) == []

    @pytest.mark.parametrize("verb", ["NEG-OPEN", "NEG-MSG"])
    def test_a_huge_message_is_refused_at_little_cost(self, client: Client, verb: str) -> None:
        parts = (verb, "s", {}) if verb == "NEG-OPEN" else (verb, "s")
        frame = orjson.dumps([*parts, "61" + "00" * (16 << 20)]).decode()
        started = time.process_time()

        ((kind, id, reason),) = client.send_frame(frame)

        assert (kind, id, reason[:8]) == ("NEG-ERR", "s", "invalid:")
        assert time.process_time() - started < 5

    def test_as_many_ranges_as_a_frame_holds(self, agent: Agent, client: Client) -> None:
        store(agent, 100)
        ranges = "01000200" * 14_000  # an empty list to the same bound, again and again
        started = time.process_time()

        (answer,) = client.send("NEG-OPEN", "s", {}, "61" + ranges)

        assert answer[0] in ("NEG-MSG", "NEG-ERR")
        assert time.process_time() - started < 5


class TestBounds:
    def test_a_sync_above_the_limit_of_a_connection_is_refused(self, agent_with: Any) -> None:
        client = Client(agent_with(max_syncs=2))
        for sync_id in ("one", "two", "two"):
            assert client.send("NEG-OPEN", sync_id, {}, EMPTY)[0][0] == "NEG-MSG"

        assert client.send("NEG-OPEN", "three", {}, EMPTY) == [["NEG-ERR", "three", "CLOSED"]]
        client.send("NEG-CLOSE", "one")
        assert client.send("NEG-OPEN", "three", {}, EMPTY)[0][0] == "NEG-MSG"
        assert Client(client.agent, "other").send("NEG-OPEN", "x", {}, EMPTY)[0][0] == "NEG-MSG"

    def test_ids_at_the_end_of_the_alphabet_count_too(self, agent_with: Any) -> None:
        client = Client(agent_with(max_syncs=1))
        client.send("NEG-OPEN", "\U0010ffff" * 2, {}, EMPTY)

        assert client.send("NEG-OPEN", "x", {}, EMPTY) == [["NEG-ERR", "x", "CLOSED"]]

    def test_a_set_above_the_limit_is_too_big(self, agent_with: Any) -> None:
        agent = agent_with(max_sync_events=10)
        client = Client(agent)
        store(agent, 10)
        assert client.send("NEG-OPEN", "s", {}, EMPTY)[0][0] == "NEG-MSG"

        agent.events.save(made(kind=7))

        assert client.send("NEG-OPEN", "s", {}, EMPTY) == [["NEG-ERR", "s", "RESULTS_TOO_BIG", 10]]
        assert client.send("NEG-MSG", "s", EMPTY) == [["NEG-ERR", "s", "CLOSED"]]
        assert client.send("NEG-OPEN", "s", {"kinds": [1]}, EMPTY)[0][0] == "NEG-MSG"

    def test_events_that_several_filters_match_are_read_for_each_and_there_once(
        self, agent_with: Any
    ) -> None:
        agent = agent_with(max_sync_events=20)
        store(agent, 10)
        client = Client(agent)

        assert len(members(client, [{}, {"kinds": [1]}])) == 10
        # Twenty filters are not allowed to read twenty times as much as one.
        answer = client.send("NEG-OPEN", "s", [{}, {"kinds": [1]}, {"kinds": [1, 2]}], EMPTY)
        assert answer == [["NEG-ERR", "s", "RESULTS_TOO_BIG", 20]]

    def test_index_entries_that_a_filter_reads(self, agent_with: Any) -> None:
        agent = agent_with(max_scan=10)
        store(agent, 11)
        client = Client(agent)

        answer = client.send("NEG-OPEN", "s", {"limit": 100}, EMPTY)

        assert answer == [["NEG-ERR", "s", "RESULTS_TOO_BIG", 10]]

    def test_index_entries_that_all_filters_read_together(self, agent_with: Any) -> None:
        agent = agent_with(max_scan=10)
        store(agent, 6)
        client = Client(agent)
        assert client.send("NEG-OPEN", "s", {"limit": 9}, EMPTY)[0][0] == "NEG-MSG"

        answer = client.send("NEG-OPEN", "s", [{"limit": 9}, {"limit": 8}], EMPTY)

        assert answer == [["NEG-ERR", "s", "RESULTS_TOO_BIG", 10]]

    def test_frames_fit_through_api_gateway(self, agent: Agent, client: Client) -> None:
        sync_id = "\x01" * 64  # as long as it can be: each character becomes six
        store(agent, 2500)

        frame = orjson.dumps(client.send("NEG-OPEN", sync_id, {}, EMPTY)[0])

        limit = agent.settings.sync_frame
        assert 2 * limit - 500 < len(frame) <= 2 * limit + 500 < 128 * 1024

    def test_a_frame_setting_that_is_too_small(self, agent_with: Any) -> None:
        agent = agent_with(sync_frame=1)
        events = store(agent, 300)

        learned = reconcile(Client(agent), {})

        assert learned.need == {event.id for event in events}
        assert max(map(len, learned.replies)) <= 2 * 4096


class TestWhatIsKept:
    def test_an_idle_sync_is_forgotten(self, agent: Agent, client: Client, clock: Clock) -> None:
        life = agent.settings.sync_seconds
        client.send("NEG-OPEN", "s", {}, EMPTY)
        for _ in range(3):
            clock.now += life
            assert client.send("NEG-MSG", "s", EMPTY) == [["NEG-MSG", "s", EMPTY]]

        clock.now += life + 61

        assert client.send("NEG-MSG", "s", EMPTY) == [["NEG-ERR", "s", "CLOSED"]]
        assert len(SEALED) == 0

    def test_most_messages_write_nothing(self, agent: Agent, client: Client, clock: Clock) -> None:
        client.send("NEG-OPEN", "s", {}, EMPTY)
        before = agent.engine.get(Table.SESSIONS, "c#client", "n#s")

        clock.now += 59
        client.send("NEG-MSG", "s", EMPTY)

        assert agent.engine.get(Table.SESSIONS, "c#client", "n#s") == before

    def test_the_syncs_of_a_client_that_leaves_are_forgotten(
        self, agent: Agent, client: Client
    ) -> None:
        other = Client(agent, "other")
        for each in (client, other):
            each.send("NEG-OPEN", "s", {}, EMPTY)
            each.send("REQ", "s", {"limit": 0})

        disconnect(agent, "client")

        assert list(read_all(agent.engine, Query(Table.SESSIONS, "c#client"))) == []
        assert len(SEALED) == 1
        assert other.send("NEG-MSG", "s", EMPTY) == [["NEG-MSG", "s", EMPTY]]
        assert agent.subscriptions.ids("other") == {"s"}


def test_what_runs_over_the_rate_ends_the_sync(agent_with: Any) -> None:
    client = Client(agent_with(requests_per_second=1, request_burst=2))
    client.send("NEG-OPEN", "s", {}, EMPTY)
    client.send("NEG-MSG", "s", EMPTY)

    ((kind, _, reason),) = client.send("NEG-MSG", "s", EMPTY)

    assert (kind, reason.split(":")[0]) == ("NEG-ERR", "rate-limited")
    assert client.agent.syncs.open_ids("client") == set()
