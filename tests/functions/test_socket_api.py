"""The relay behind API Gateway's WebSocket API as it really is: what a client sees of it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from farthing.aws.connections import GatewayConnections
from farthing.context import Agent
from farthing.handlers import runtime
from farthing.settings import Settings
from farthing.store.memory import MemoryEngine
from infra.deployment import Deployment
from tests.functions.gateway import (
    BROKEN,
    GOING_AWAY,
    IDLE_SECONDS,
    LARGEST_FRAME,
    THROTTLED,
    TOO_BIG,
    Socket,
    SocketApi,
)
from tests.relay.numbered import Feed
from tests.relay.world import Clock, make_agent, signed


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.api = SocketApi(self.clock)
        deployed = Settings.from_env(Deployment().environment)
        made = make_agent(MemoryEngine(clock=self.clock), self.clock)
        settings = replace(
            made.settings,
            max_message_length=deployed.max_message_length,
            sync_frame=deployed.sync_frame,
        )
        self.waited = 0.0
        connections = GatewayConnections(
            "https://example.com/relay", client=lambda _: self.api, sleep=self._wait,
            clock=lambda: self.waited,
        )  # fmt: skip
        self.agent: Agent = replace(made, settings=settings, connections=connections)
        runtime.install(self.agent)

    def _wait(self, seconds: float) -> None:
        self.waited += seconds

    def connect(self) -> Socket:
        """A client that has had its challenge."""
        socket = self.api.connect()
        socket.send("CLOSE", "nothing")
        ((verb, _),) = socket.messages()
        assert verb == "AUTH"
        return socket


@pytest.fixture
def world() -> Iterator[World]:
    yield World()
    runtime.install(None)


class TestAnswers:
    def test_a_verb_that_answers_nothing_sends_nothing(self, world: World) -> None:
        """An empty frame is JSON to no client: many drop the connection."""
        client = world.connect()
        client.send("REQ", "r", {"kinds": [1]})
        client.send("NEG-OPEN", "n", {"kinds": [1]}, "6100000200")
        client.messages()
        for message in (("CLOSE", "r"), ("CLOSE", "never"), ("NEG-CLOSE", "n")):
            client.send(*message)
            assert client.frames == [], message

    def test_a_live_feed_gets_its_eose_and_no_empty_frame(self, world: World) -> None:
        client = world.connect()
        client.send("CHANGES", "feed", {"since": 0, "live": True})
        assert [message[:3] for message in client.messages()] == [["CHANGES", "feed", "EOSE"]]

    def test_every_other_verb_has_one_answer(self, world: World) -> None:
        client = world.connect()
        event = signed().as_dict()
        for message, answer in (
            (("EVENT", event), "OK"),
            (("REQ", "r", {"kinds": [7]}), "EOSE"),
            (("COUNT", "c", {"kinds": [1]}), "COUNT"),
            (("CHANGES", "f", {"since": 0, "authors": ["a" * 64]}), "CHANGES"),
            (("NEG-OPEN", "n", {"kinds": [1]}, "6100000200"), "NEG-MSG"),
            (("NEG-MSG", "n", "6100000200"), "NEG-MSG"),
            (("AUTH", event), "OK"),
            (("NONSENSE",), "NOTICE"),
        ):
            client.send(*message)
            assert [each[0] for each in client.messages()] == [answer], message

    def test_eose_comes_after_what_is_stored(self, world: World) -> None:
        client = world.connect()
        for number in range(30):
            client.send("EVENT", signed(content=str(number)).as_dict())
        client.messages()
        client.send("REQ", "r", {"kinds": [1]})
        verbs = [message[0] for message in client.messages()]
        assert verbs == ["EVENT"] * 30 + ["EOSE"]


class TestFrames:
    def test_the_largest_message_that_is_advertised_arrives(self, world: World) -> None:
        client = world.connect()
        empty = len('["REQ", "r", {"#t": [""]}]')
        most = world.agent.settings.max_message_length
        client.send("REQ", "r", {"#t": ["x" * (most - empty)]})
        assert client.closed is None
        assert [message[0] for message in client.messages()] == ["EOSE"]

    def test_what_is_advertised_is_what_api_gateway_takes(self, world: World) -> None:
        assert world.agent.settings.max_message_length == LARGEST_FRAME
        client = world.connect()
        client.send_text('["REQ","r",{"#t":["' + "x" * LARGEST_FRAME + '"]}]')
        assert client.closed == TOO_BIG

    def test_the_messages_of_a_large_sync_fit(self, world: World) -> None:
        """Both sides' do: what a client sends back is no longer than what it was sent."""
        for number in range(900):
            world.agent.events.save(signed(content=str(number), created_at=1700000000 + number))
        client = world.connect()
        client.send("NEG-OPEN", "n", {"kinds": [1]}, "6100000200")  # has none of them
        (message,) = client.messages()
        assert message[0] == "NEG-MSG"
        assert 20_000 < len(f'["NEG-MSG","n","{message[2]}"]') <= LARGEST_FRAME


class TestThrottling:
    @pytest.mark.parametrize("error", [*THROTTLED, *BROKEN])
    def test_a_request_is_answered_a_little_later(self, world: World, error: Exception) -> None:
        client = world.connect()
        client.send("EVENT", signed().as_dict())
        client.messages()
        refusals = iter([error] * 3)
        world.api.refuses = lambda _: next(refusals, None)
        client.send("REQ", "r", {"kinds": [1]})
        assert [message[0] for message in client.messages()] == ["EVENT", "EOSE"]

    @pytest.mark.parametrize("error", THROTTLED)
    def test_one_that_cannot_be_answered_is_closed_and_the_client_stays(
        self, world: World, error: Exception
    ) -> None:
        client = world.connect()
        client.send("EVENT", signed().as_dict())
        client.messages()
        world.api.refuses = lambda frame: error if frame.startswith('["EVENT"') else None
        client.send("REQ", "r", {"kinds": [1]})
        ((verb, subscription, reason),) = client.messages()
        assert (verb, subscription) == ("CLOSED", "r")
        assert reason.startswith("error: ")
        assert client.closed is None
        assert world.waited < 29, "the function must still be there to say so"


class TestIdle:
    def test_a_connection_on_which_nothing_happens_ends(self, world: World) -> None:
        client = world.connect()
        world.clock.now += IDLE_SECONDS
        world.api.tick()
        assert client.closed == GOING_AWAY
        assert world.agent.sessions.get(client.id) is None

    def test_a_feed_goes_on_where_it_was_on_a_new_connection(self, world: World) -> None:
        """The client remembers the last number that it has seen, and asks for what follows."""
        feed = Feed(world.agent)
        feed.add(*(signed(content=str(number)) for number in range(3)))
        first = world.connect()
        first.send("CHANGES", "feed", {"since": 0, "live": True})
        seen = [message[3] for message in first.messages() if message[2] == "EVENT"]
        assert seen == [1, 2, 3]

        world.clock.now += IDLE_SECONDS
        world.api.tick()
        feed.add(signed(content="meanwhile"))
        second = world.connect()
        second.send("CHANGES", "feed", {"since": seen[-1], "live": True})

        resumed = [message[3] for message in second.messages() if message[2] == "EVENT"]
        assert resumed == [4]

    def test_a_message_in_either_direction_keeps_it_open(self, world: World) -> None:
        client = world.connect()
        for _ in range(3):
            world.clock.now += IDLE_SECONDS - 1
            client.send("COUNT", "alive", {"limit": 0, "kinds": [1]})
        assert client.closed is None
