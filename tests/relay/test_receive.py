"""Every frame gets the answer that its sender waits for, whatever goes wrong."""

from collections.abc import Callable

import orjson
import pytest

from farthing.context import Agent
from farthing.nostr.messages import Verb
from farthing.ports.meter import Metric
from farthing.relay.caller import Caller
from farthing.relay.receive import receive
from farthing.relay.socket_delivery import SOCKETS
from farthing.relay.verbs import VERBS
from farthing.store.postings import id_in
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Contended, Table, Throttled
from tests.relay.world import (
    HOST,
    START,
    Client,
    Clock,
    MotoTables,
    connections_of,
    counts_of,
    make_agent,
    signed,
)
from tests.store.faulty import Fault, FaultyEngine

AgentWith = Callable[..., Agent]


@pytest.fixture
def agent(agent_with: AgentWith) -> Agent:
    """On SQLite only: nothing here is about the engine."""
    return agent_with()


class TestUnanswerable:
    @pytest.mark.parametrize(
        ("frame", "reason"),
        [
            ("", "expected JSON"),
            ("hello", "expected JSON"),
            ("[" * 3000, "expected JSON"),
            ("{}", "expected an array that starts with a verb"),
            ("[1]", "expected an array that starts with a verb"),
            ('["HELLO"]', "unknown verb 'HELLO'"),
            ('["REQ"]', "REQ without a subscription id"),
            ('["REQ",5,{}]', "REQ without a subscription id"),
            ('["COUNT",null,{}]', "COUNT without a subscription id"),
            ('["CLOSE"]', "CLOSE without a subscription id"),
        ],
    )
    def test_a_message_without_an_id_gets_a_notice(
        self, client: Client, frame: str, reason: str
    ) -> None:
        assert client.send_frame(frame) == [["NOTICE", f"invalid: {reason}"]]

    @pytest.mark.parametrize("subscription_id", ["", "x" * 65, "x" * 5000])
    def test_a_close_that_closes_nothing(self, client: Client, subscription_id: str) -> None:
        reason = "invalid: subscription id is not 1-64 characters"

        assert client.send("CLOSE", subscription_id) == [["NOTICE", reason]]


class TestAddressed:
    """What carries an id is answered by that id, and not by a NOTICE that nobody waits for."""

    @pytest.mark.parametrize("body", [[], [None], ["x"], [{}], [{"id": 5}], [[1]]])
    @pytest.mark.parametrize("verb", ["EVENT", "AUTH"])
    def test_a_body_that_is_no_event_is_refused_by_ok(
        self, client: Client, verb: str, body: list[object]
    ) -> None:
        ((kind, id, accepted, reason),) = client.send(verb, *body)

        assert (kind, id, accepted) == ("OK", "", False)
        assert reason.startswith("invalid: ")

    def test_events_that_have_an_id_at_least(self, client: Client) -> None:
        ((_, id, accepted, _),) = client.send("EVENT", {"id": "ab", "kind": "x"})

        assert (id, accepted) == ("ab", False)

    @pytest.mark.parametrize("verb", ["REQ", "COUNT"])
    @pytest.mark.parametrize("subscription_id", ["", "x" * 65])
    def test_subscription_ids_of_wrong_length(self, client, verb, subscription_id) -> None:
        reason = "invalid: subscription id is not 1-64 characters"

        assert client.send(verb, subscription_id, {}) == [["CLOSED", subscription_id, reason]]

    def test_messages_that_are_too_long(self, agent_with: AgentWith) -> None:
        client = Client(agent_with(max_message_length=1000))
        event = signed(content="é" * 450)  # under the limit in characters, over it in bytes
        reason = "invalid: message over 1000 bytes"

        assert client.send("EVENT", event.as_dict()) == [["OK", event.id, False, reason]]
        assert client.send("REQ", "x", {"#t": ["y" * 1000]}) == [["CLOSED", "x", reason]]
        assert client.send("COUNT", "x", {"#t": ["y" * 1000]}) == [["CLOSED", "x", reason]]
        assert client.send_frame(" " * 1001) == [["NOTICE", "invalid: expected JSON"]]

    def test_messages_of_exactly_the_limit(self, agent_with: AgentWith) -> None:
        client = Client(agent_with(max_message_length=1000))

        frame = '["COUNT","x",{"kinds":[1]}]'.ljust(1000)

        assert client.send_frame(frame) == [["COUNT", "x", {"count": 0}]]

    def test_verbs_that_the_route_does_not_serve(self, agent: Agent) -> None:
        client = Client(agent)
        only_close = {Verb.CLOSE: VERBS[Verb.CLOSE]}

        def answer(frame: str) -> list[object]:
            caller = Caller(agent, client.id, START * 1000, HOST)
            return orjson.loads(receive(agent, caller, frame, only_close) or "")

        assert answer('["REQ","x",{}]') == ["CLOSED", "x", "error: REQ is not served here"]
        assert answer('["REQ"]') == ["NOTICE", "error: REQ is not served here"]
        assert answer('["EVENT",{"id":"x"}]')[:3] == ["OK", "x", False]


class TestFailures:
    """The store fails under any verb at any operation: the client is told, and nothing escapes."""

    def frames(self) -> dict[str, tuple[str, list[object]]]:
        event = signed()
        return {
            "EVENT": (orjson.dumps(["EVENT", event.as_dict()]).decode(), ["OK", event.id, False]),
            "REQ": ('["REQ","x",{"kinds":[1]}]', ["CLOSED", "x"]),
            "COUNT": ('["COUNT","x",{"kinds":[1]}]', ["CLOSED", "x"]),
            "CLOSE": ('["CLOSE","x"]', ["NOTICE"]),
        }

    @pytest.mark.parametrize("verb", ["EVENT", "REQ", "COUNT", "CLOSE"])
    @pytest.mark.parametrize("error", [RuntimeError, Throttled, Contended])
    def test_a_failing_store_gives_an_error_of_the_verb(
        self, sqlite, clock: Clock, verb: str, error: type
    ) -> None:
        frame, start = self.frames()[verb]
        agent = make_agent(FaultyEngine(sqlite), clock)
        client = Client(agent)

        agent.engine.plan = lambda *_: Fault(lambda: error("broken"))
        (answer,) = client.send_frame(frame)

        assert answer[: len(start)] == start
        assert answer[-1].startswith("error: ")
        assert answer[-1].endswith("try again")
        assert "RuntimeError" not in answer[-1]

    @pytest.mark.parametrize("verb", ["EVENT", "REQ", "COUNT", "CLOSE"])
    def test_a_fault_at_each_operation_gives_an_error_of_the_verb(
        self, sqlite: SqliteEngine, clock: Clock, verb: str
    ) -> None:
        frame, start = self.frames()[verb]
        agent = make_agent(FaultyEngine(sqlite), clock)
        client = Client(agent, "first")
        agent.engine.operations.clear()
        client.send_frame(frame)
        operations = len(agent.engine.operations)
        assert operations >= 2

        for number in range(operations):
            client = Client(agent, f"client {number}")
            agent.engine.operations.clear()
            agent.engine.plan = lambda count, _, at=number: (
                Fault(RuntimeError) if count == at else None
            )
            answers = client.send_frame(frame)
            agent.engine.plan = lambda *_: None

            told = [answer for answer in answers if answer[: len(start)] == start]
            good = [answer for answer in answers if answer[0] in ("EOSE", "COUNT", "OK")]
            assert told or good or verb == "CLOSE"
            live = [subscription for _, subscription in SOCKETS.wanting(agent, [signed()])]
            if told:  # CLOSED means closed
                assert client.id not in [subscription.connection_id for subscription in live]

    def test_is_counted_and_logged(self, sqlite, clock, caplog: pytest.LogCaptureFixture) -> None:
        agent = make_agent(FaultyEngine(sqlite), clock)
        client = Client(agent)

        agent.engine.plan = lambda *_: Fault(RuntimeError)
        client.send("COUNT", "x", {})

        assert counts_of(agent)[Metric.INTERNAL_ERRORS] == 1
        assert "COUNT failed" in caplog.text

    def test_frames_that_cannot_be_posted(self, client: Client) -> None:
        event = signed()
        client.publish(event)

        connections_of(client.agent).error = RuntimeError("gateway down")
        ((kind, _, reason),) = client.send("REQ", "x", {})

        assert (kind, reason[:7]) == ("CLOSED", "error: ")
        assert client.agent.subscriptions.ids(client.id) == set()

    def test_a_challenge_that_cannot_be_posted(self, agent: Agent) -> None:
        client = Client(agent, greeted=False)
        connections_of(agent).error = RuntimeError("gateway down")

        assert client.send("COUNT", "x", {}) == [["COUNT", "x", {"count": 0}]]


class TestGreeting:
    @pytest.mark.parametrize("frame", ['["CLOSE","x"]', "nonsense", '["COUNT","x",{"ids":[]}]'])
    def test_the_first_message_brings_the_challenge(self, agent: Agent, frame: str) -> None:
        client = Client(agent, greeted=False)

        challenge = client.send_frame(frame)[0]
        again = client.send_frame(frame)

        assert challenge[0] == "AUTH"
        assert len(challenge[1]) == 32
        assert all(answer[0] != "AUTH" for answer in again)

    def test_the_challenge_comes_before_the_answer(self, agent: Agent) -> None:
        client = Client(agent, greeted=False)

        kinds = [answer[0] for answer in client.send("REQ", "x", {"kinds": [4]})]

        assert kinds == ["AUTH", "CLOSED"]

    def test_every_connection_has_its_own(self, agent: Agent) -> None:
        assert Client(agent, "one").challenge != Client(agent, "other").challenge

    def test_a_connection_that_we_do_not_know_gets_none(self, agent: Agent) -> None:
        caller = Caller(agent, "stranger", START * 1000)

        assert receive(agent, caller, '["CLOSE","x"]', VERBS) is None
        assert connections_of(agent).posted == []


class TestRate:
    """Ten a second and fifteen at once."""

    @pytest.fixture
    def client(self, agent_with: AgentWith) -> Client:
        return Client(agent_with(requests_per_second=10, request_burst=15))  # one message sent

    def refused(self, client: Client, number: int) -> int:
        answers = [client.send("COUNT", "x", {"ids": []})[-1] for _ in range(number)]
        assert {answer[0] for answer in answers} <= {"COUNT", "CLOSED"}
        reasons = {answer[2] for answer in answers if answer[0] == "CLOSED"}
        assert reasons <= {"rate-limited: at most 10 messages a second"}
        return sum(answer[0] == "CLOSED" for answer in answers)

    def test_a_burst_is_allowed_and_no_more(self, client: Client) -> None:
        assert self.refused(client, 14) == 0
        assert self.refused(client, 1) == 1

    def test_an_event_that_is_refused_leaves_nothing_behind(
        self, moto_tables: MotoTables, clock: Clock
    ) -> None:
        """Also where it is counted and indexed side by side, as in the cloud."""
        engine = moto_tables.empty(clock)
        client = Client(make_agent(engine, clock, requests_per_second=10, request_burst=15))
        events = [signed(content=str(number)) for number in range(20)]

        taken = [event.id for event in events if client.publish(event)[2]]

        assert len(taken) == 14
        assert {id_in(sk) for _, sk, _ in moto_tables.items(Table.POSTINGS)} == set(taken)

    def test_time_allows_for_more(self, client: Client, clock: Clock) -> None:
        self.refused(client, 14)
        clock.now += 2

        assert self.refused(client, 20) == 0
        assert self.refused(client, 1) == 1

    def test_what_time_allows_for_does_not_pile_up(self, client: Client, clock: Clock) -> None:
        clock.now += 1000
        self.refused(client, 1)

        assert self.refused(client, 15) == 0
        assert self.refused(client, 1) == 1

    def test_on_the_long_run_the_rate_holds(self, client: Client, clock: Clock) -> None:
        """Who takes all there is, second after second, gets the burst once and then the rate."""
        served = 0
        for _ in range(100):
            clock.now += 1
            while not self.refused(client, 1):
                served += 1

        # Of ten a second one is the refused one; messages take a millisecond each, too.
        assert 100 * 9 + 15 <= served <= 100 * 9 + 15 + 10

    def test_a_client_that_slows_down_is_served_again(self, client: Client, clock: Clock) -> None:
        self.refused(client, 25)
        clock.now += 2

        assert self.refused(client, 5) == 0

    @pytest.mark.parametrize("verb", ["EVENT", "REQ", "COUNT", "AUTH"])
    def test_each_verb_is_refused_in_its_own_way(self, client: Client, verb: str) -> None:
        self.refused(client, 15)
        event = signed()
        body = [event.as_dict()] if verb in ("EVENT", "AUTH") else ["x", {}]

        (answer,) = client.send(verb, *body)

        assert answer[-1] == "rate-limited: at most 10 messages a second"
        assert answer[:2] == (["OK", event.id] if len(body) == 1 else ["CLOSED", "x"])

    def test_a_clock_that_is_set_back(self, client: Client, clock: Clock) -> None:
        client.send("CLOSE", "x")
        clock.now -= 3600
        for _ in range(10):
            assert self.refused(client, 10) == 0
            clock.now += 1

    def test_nothing_of_it_is_done(self, client: Client, clock: Clock) -> None:
        self.refused(client, 15)
        event = signed()
        client.publish(event)
        client.send("REQ", "x", {})
        clock.now += 5

        assert client.ids({}) == []
        assert client.agent.subscriptions.ids(client.id) == {"ids"}

    def test_a_client_that_goes_on_over_its_rate_is_disconnected(self, client: Client) -> None:
        closed = connections_of(client.agent).closed
        self.refused(client, 29)
        assert closed == []

        self.refused(client, 1)

        assert set(closed) == {client.id}

    def test_refused_messages_count_as_well(self, client: Client) -> None:
        for _ in range(14):
            client.send_frame("nonsense")

        assert self.refused(client, 1) == 1

    def test_no_rate_is_any_rate(self, agent_with: AgentWith) -> None:
        client = Client(agent_with(requests_per_second=0, request_burst=0), "other")

        assert self.refused(client, 50) == 0
