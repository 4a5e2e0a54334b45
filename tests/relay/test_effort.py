"""What one request may cost: entries of all its filters together, time, and its place in the slow
lane."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from farthing.context import Agent
from farthing.store.planner import ScanAllowance, ScanTooLong
from tests.relay.numbered import Feed, ask, follow
from tests.relay.test_subscribe import live
from tests.relay.world import ALICE, START, Client, Clock, connections_of, made, signed

AgentWith = Callable[..., Agent]
AUTHOR = "a" * 64
NOWHERE = {"authors": [AUTHOR], "#t": ["nowhere"]}


class Lane:
    """A slow lane that a test watches."""

    def __init__(self, *, has_room: bool = True) -> None:
        self.has_room = has_room
        self.entered = 0
        self.inside = 0
        self.waited: list[float] = []

    def enter(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.entered += self.has_room
        self.inside += self.has_room
        return self.has_room

    def leave(self) -> None:
        self.inside -= 1


def fill(agent: Agent, number: int, **changes: Any) -> None:
    for each in range(number):
        agent.events.save(made(created_at=START - each, **changes))


class TestEntries:
    def test_all_filters_of_a_req_share_them(self, agent_with: AgentWith) -> None:
        agent = agent_with(max_scan=25)
        fill(agent, 10)
        client = Client(agent)

        assert client.send("REQ", "x", NOWHERE, NOWHERE) == [["EOSE", "x"]]
        (answer,) = client.send("REQ", "x", NOWHERE, NOWHERE, NOWHERE)

        assert answer == ["CLOSED", "x", "error: filter is too broad for its limit, narrow it"]
        assert live(agent, made(tags=[["t", "nowhere"]])) == []

    def test_all_filters_of_a_count_share_them(self, agent_with: AgentWith) -> None:
        agent = agent_with(max_scan=25)
        fill(agent, 10)
        client = Client(agent)

        assert client.send("COUNT", "x", NOWHERE, NOWHERE) == [["COUNT", "x", {"count": 0}]]
        ((kind, *_),) = client.send("COUNT", "x", NOWHERE, NOWHERE, NOWHERE)

        assert kind == "CLOSED"

    def test_estimates_take_what_is_left(self, agent_with: AgentWith) -> None:
        """A filter is looked at before another one is counted to its end."""
        agent = agent_with(max_scan=25, count_exactly=4)
        fill(agent, 20)
        fill(agent, 3, kind=7)

        ((kind, _, counted),) = Client(agent).send("COUNT", "x", {"kinds": [1]}, {"kinds": [7]})

        assert kind == "COUNT"
        assert counted["approximate"]
        assert 5 + 3 < counted["count"] < 23

    def test_the_holder_is_called_now_and_then(self) -> None:
        seen: list[int] = []
        allowance = ScanAllowance(1000, seen.append)

        for _ in range(1000):
            allowance.spend(1)

        assert seen == [250, 500, 750, 1000]
        with pytest.raises(ScanTooLong):
            allowance.spend(1)


class TestTime:
    @pytest.fixture
    def agent(self, agent_with: AgentWith, clock: Clock) -> Agent:
        agent = agent_with(req_seconds=20, max_scan=10_000)
        fill(agent, 300)

        def pass_time() -> None:
            clock.now += 11

        connections_of(agent).before_post = pass_time
        return agent

    def test_a_req_that_takes_too_long_is_closed(self, agent: Agent) -> None:
        *events, end = Client(agent).send("REQ", "x", {"limit": 300})

        assert [event[0] for event in events] == ["EVENT"] * 200
        assert end == [
            "CLOSED", "x", "error: this took too long, narrow the filter or try again",
        ]  # fmt: skip
        assert live(agent, signed(ALICE)) == []

    def test_on_one_machine_the_time_of_a_slow_reader_does_not_count(self, agent: Agent) -> None:
        answers = Client(replace(agent, alone=True)).send("REQ", "x", {"limit": 300})

        assert [answer[0] for answer in answers] == ["EVENT"] * 300 + ["EOSE"]

    @pytest.mark.parametrize("verb", ["REQ", "COUNT"])
    def test_a_search_that_finds_nothing_ends_in_time(
        self, agent: Agent, clock: Clock, monkeypatch: pytest.MonkeyPatch, verb: str
    ) -> None:
        read = agent.events.get_many

        def slowly(ids: Any, reading: Any = None) -> Any:
            clock.now += 11
            return read(ids, reading)

        monkeypatch.setattr(agent.events, "get_many", slowly)

        ((kind, _, reason),) = Client(agent).send(verb, "x", NOWHERE)

        assert (kind, reason) == (
            "CLOSED", "error: this took too long, narrow the filter or try again",
        )  # fmt: skip


class TestSlowLane:
    @pytest.fixture
    def lane(self) -> Lane:
        return Lane()

    @pytest.fixture
    def agent(self, agent_with: AgentWith, lane: Lane) -> Agent:
        agent = replace(agent_with(light_scan=400), slow_lane=lane)
        fill(agent, 600)
        return agent

    @pytest.mark.parametrize("verb", ["REQ", "COUNT"])
    def test_a_small_request_does_not_enter(self, agent: Agent, lane: Lane, verb: str) -> None:
        Client(agent).send(verb, "x", {"limit": 100, "until": START - 500})

        assert lane.entered == 0

    @pytest.mark.parametrize("verb", ["REQ", "COUNT"])
    def test_a_large_request_enters_once_and_leaves(
        self, agent: Agent, lane: Lane, verb: str
    ) -> None:
        Client(agent).send(verb, "x", NOWHERE)

        assert (lane.entered, lane.inside) == (1, 0)

    def test_it_leaves_also_where_it_fails(self, agent_with: AgentWith, lane: Lane) -> None:
        agent = replace(agent_with(light_scan=400, max_scan=550), slow_lane=lane)
        fill(agent, 600)

        assert Client(agent).send("REQ", "x", NOWHERE)[-1][0] == "CLOSED"
        assert (lane.entered, lane.inside) == (1, 0)

    def test_it_waits_no_longer_than_it_may_take(self, agent: Agent, lane: Lane) -> None:
        Client(agent).send("REQ", "x", NOWHERE)

        assert lane.waited == [agent.settings.req_seconds]

    def test_without_a_place_it_is_refused(self, agent: Agent, lane: Lane) -> None:
        lane.has_room = False

        (answer,) = Client(agent).send("REQ", "x", NOWHERE)

        assert answer == ["CLOSED", "x", "error: busy with other large requests, try again"]
        assert lane.inside == 0

    def test_changes_end_where_they_have_come_to(self, agent_with: AgentWith, lane: Lane) -> None:
        agent = replace(agent_with(light_scan=100), slow_lane=lane)
        Feed(agent).add(*(made() for _ in range(250)), made(kind=7))
        client = Client(agent)
        lane.has_room = False

        page = ask(client, {"kinds": [7]})
        assert (page.numbers, page.last, page.next) == ([], 251, 100)
        assert [number for number, _ in follow(client, {"kinds": [7]})] == [251]
        lane.has_room = True
        page = ask(client, {"kinds": [7]})

        assert (page.numbers, page.next) == ([251], None)
        assert (lane.entered, lane.inside) == (1, 0)
