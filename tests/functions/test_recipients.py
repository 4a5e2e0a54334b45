"""An event for more clients than one call can serve: in parts by way of SQS, and to each once."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from farthing.aws.connections import GatewayConnections
from farthing.aws.recipients import NotTaken, SqsRecipients, read_part, write_part
from farthing.context import Agent
from farthing.handlers import runtime
from farthing.nostr.events import Event
from farthing.nostr.filters import parse_filter
from farthing.ports.meter import Metric
from farthing.ports.recipients import Part
from farthing.relay.fan_out import fan_out
from farthing.store.memory import MemoryEngine
from farthing.store.subscriptions import Subscription
from functions.recipients import handler as recipients
from tests.functions.gateway import BROKEN, GONE, THROTTLED, Management, Queue
from tests.relay.world import START, Clock, counts_of, make_agent, signed

AUTHOR = signed().pubkey


class World:
    """A relay in the cloud, with many who follow one author."""

    def __init__(self, followers: int) -> None:
        clock = Clock()
        self.gateway, self.queue, self.waited = Management(), Queue(), 0.0
        connections = GatewayConnections(
            "https://example.com/relay", client=lambda _: self.gateway, sleep=self._wait,
            jitter=lambda: 1.0, clock=lambda: self.waited,
        )  # fmt: skip
        engine = MemoryEngine(clock=clock)
        self.agent: Agent = replace(
            make_agent(engine, clock),
            connections=connections,
            recipients=SqsRecipients("https://queue.example/x", lambda: self.queue, self._wait),
        )
        filters = [parse_filter({"authors": [AUTHOR]})]
        for number in range(followers):
            self.agent.subscriptions.subscribe(
                Subscription(f"c{number}", "home", 2, filters), START
            )
        runtime.install(self.agent)

    def _wait(self, seconds: float) -> None:
        self.waited += seconds

    def work(self, *, doubled: Callable[[int], bool] = lambda _: False) -> int:
        """Call the function with each message, as Lambda does. How many calls it took."""
        calls = 0
        while (event := self.queue.take()) is not None:
            for _ in range(2 if doubled(calls) else 1):
                recipients.handler(event, None)
            calls += 1
        return calls

    def work_one(self) -> None:
        event = self.queue.take()
        assert event is not None
        recipients.handler(event, None)

    def received(self) -> Counter[str]:
        return Counter(connection_id for connection_id, _ in self.gateway.posted)


@pytest.fixture
def world() -> Iterator[Callable[[int], World]]:
    yield World
    runtime.install(None)


def test_a_note_for_twenty_thousand_reaches_each_once(world: Callable[[int], World]) -> None:
    here = world(20_500)
    note = signed(content="to everyone")

    fan_out(here.agent, [note])

    assert here.gateway.posted == [], "one call does not try what it cannot finish"
    assert here.queue.requests <= 21, "ten parts to a request"
    assert here.work() == 41
    assert set(here.received().values()) == {1}
    assert len(here.received()) == 20_500
    _, frame = here.gateway.posted[-1]
    assert json.loads(frame) == ["EVENT", "home", json.loads(note.to_json())]
    assert counts_of(here.agent)[Metric.EVENTS_DELIVERED] == 20_500


def test_a_note_for_few_is_sent_at_once(world: Callable[[int], World]) -> None:
    here = world(500)
    fan_out(here.agent, [signed()])
    assert here.queue.waiting == []
    assert len(here.received()) == 500


def test_a_call_takes_on_what_it_can_serve_of_many_notes(world: Callable[[int], World]) -> None:
    here = world(300)
    fan_out(here.agent, [signed(content=str(number)) for number in range(3)])
    assert len(here.gateway.posted) == 300
    assert here.work() == 2
    assert set(here.received().values()) == {3}


def test_a_part_that_is_repeated_repeats_no_other(world: Callable[[int], World]) -> None:
    """SQS may hand out a message twice."""
    here = world(1200)
    fan_out(here.agent, [signed()])
    here.work(doubled=lambda call: call == 1)
    assert sorted(Counter(here.received().values()).items()) == [(1, 700), (2, 500)]


class TestTrouble:
    @pytest.mark.parametrize("error", THROTTLED)
    def test_only_the_deliveries_that_failed_are_tried_again(
        self, world: Callable[[int], World], error: Exception
    ) -> None:
        here = world(40)
        turned_away = {f"c{number}" for number in range(0, 40, 2)}
        here.gateway.answer = lambda id, _: error if id in turned_away else None

        fan_out(here.agent, [signed()])

        ((delay, body),) = here.queue.waiting
        assert delay >= 1
        assert {place.split("#")[0] for place in read_part(body).places} == turned_away
        here.gateway.answer = lambda *_: None
        here.work()
        assert set(here.received().values()) == {1}
        assert len(here.received()) == 40
        assert here.gateway.deleted == [], "nobody is disconnected for a 429"

    def test_it_is_given_up_after_some_attempts(self, world: Callable[[int], World]) -> None:
        here = world(3)
        here.gateway.answer = lambda *_: THROTTLED[0]

        fan_out(here.agent, [signed()])
        delays = []
        while here.queue.waiting:
            delays.append(here.queue.waiting[0][0])
            here.work_one()

        assert delays == sorted(delays), "longer each time"
        assert len(delays) == 5
        assert counts_of(here.agent)[Metric.DELIVERIES_GIVEN_UP] == 3
        assert here.gateway.deleted == [], "nobody is disconnected"

    def test_a_connection_that_is_gone_is_forgotten(self, world: Callable[[int], World]) -> None:
        here = world(600)
        here.gateway.answer = lambda id, _: GONE if id == "c7" else None

        fan_out(here.agent, [signed()])
        here.work()

        assert len(here.received()) == 599
        assert here.agent.subscriptions.ids("c7") == set()

    def test_one_that_fails_while_others_succeed_is_closed(
        self, world: Callable[[int], World]
    ) -> None:
        here = world(3)
        here.gateway.answer = lambda id, _: BROKEN[0] if id == "c1" else None
        fan_out(here.agent, [signed()])
        assert here.gateway.deleted == ["c1"]
        assert here.queue.waiting == []

    def test_what_follows_waits_behind_what_was_turned_away(
        self, world: Callable[[int], World]
    ) -> None:
        """In the order of the notes, as far as one client goes."""
        here = world(1)
        here.gateway.answer = lambda *_: None if here.queue.waiting else THROTTLED[0]
        notes = [signed(content=str(number)) for number in range(3)]
        fan_out(here.agent, notes)
        assert here.gateway.posted == []
        here.gateway.answer = lambda *_: None
        here.work()
        contents = [json.loads(frame)[2]["content"] for _, frame in here.gateway.posted]
        assert contents == ["0", "1", "2"]


class TestQueue:
    def part(self, size: int = 100, places: int = 2, attempt: int = 0) -> Part:
        event: Event = signed(content="x" * size)
        return Part("socket", event.to_json(), [f"c{n}#2#home" for n in range(places)], attempt)

    def test_a_part_comes_out_as_it_went_in(self) -> None:
        part = self.part()
        assert read_part(write_part(part)) == part

    def test_requests_have_no_more_than_sqs_takes(self) -> None:
        queue = Queue()
        SqsRecipients("x", lambda: queue).put([self.part(60_000, 500) for _ in range(25)])
        assert len(queue.waiting) == 25

    def test_what_is_not_taken_is_sent_again_and_nothing_else(self) -> None:
        queue, waits = Queue(), list[float]()
        queue.refuse = lambda entries: [each["Id"] for each in entries[1:]]
        SqsRecipients("x", lambda: queue, waits.append).put([self.part(n) for n in range(3)])
        assert len(queue.waiting) == len({body for _, body in queue.waiting}) == 3
        assert len(waits) == 2

    def test_what_is_never_taken_is_not_passed_over(self) -> None:
        queue = Queue()
        queue.refuse = lambda entries: [each["Id"] for each in entries]
        with pytest.raises(NotTaken):
            SqsRecipients("x", lambda: queue, lambda _: None).put([self.part()])
