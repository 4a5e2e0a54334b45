"""What stream handlers gave up on is handled after all, from the tables, as often as one likes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.agent.recover import Period, deliver_again, number_again, push_again, stored_in
from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.store.memory import MemoryEngine
from tests.relay.numbered import Feed, LiveClient
from tests.relay.world import START, Client, Clock, connections_of, made, make_agent, signed

EVER = Period(0, 2**40)


def store(agent: Agent, clock: Clock, *seconds: int) -> list[Event]:
    """An event at each of these seconds after the start."""
    events = []
    for second in seconds:
        clock.now = START + second
        # When it was created says nothing about when it came.
        events.append(signed(content=str(second), created_at=START - 10 * second))
        agent.events.save(events[-1])
    return events


def ids(agent: Agent, period: Period) -> set[str]:
    return {event.id for some in stored_in(agent, period) for event in some}


def test_events_are_found_by_when_they_came(agent: Agent, clock: Clock) -> None:
    events = store(agent, clock, 0, 10, 20, 30)
    assert ids(agent, Period(START + 10, START + 20)) == {events[1].id, events[2].id}


def test_one_that_was_sent_again_since_came_when_it_came(agent: Agent, clock: Clock) -> None:
    (event,) = store(agent, clock, 10)
    clock.now = START + 500
    agent.events.save(event)  # a duplicate, whose postings are written anew

    assert ids(agent, Period(START + 10, START + 20)) == {event.id}
    assert ids(agent, Period(START + 400, START + 600)) == set()


@settings(max_examples=30)
@given(
    seconds=st.lists(st.integers(0, 50), max_size=30),
    period=st.tuples(st.integers(0, 50), st.integers(0, 50)),
)
def test_as_a_look_at_every_event_finds_them(seconds: list[int], period: tuple[int, int]) -> None:
    clock = Clock()
    agent = make_agent(MemoryEngine(clock=clock), clock)
    wanted = set()
    for number, second in enumerate(seconds):
        clock.now = START + second
        event = made(created_at=START - number)
        agent.events.save(event)
        if period[0] <= second <= period[1]:
            wanted.add(event.id)

    assert ids(agent, Period(START + period[0], START + period[1])) == wanted


class TestNumbers:
    def test_only_who_has_none_gets_one_oldest_first(self, agent: Agent, clock: Clock) -> None:
        events = store(agent, clock, 0, 10, 20, 30)
        feed = Feed(agent)
        feed.number(events[1])

        assert number_again(agent, EVER) == 3

        assert [entry.id for entry in feed.entries()] == [
            events[each].id for each in (1, 0, 2, 3)
        ]  # fmt: skip
        assert number_again(agent, EVER) == 0

    def test_only_events_of_the_period_are_numbered(self, agent: Agent, clock: Clock) -> None:
        events = store(agent, clock, 0, 10)
        assert number_again(agent, Period(START + 5, START + 15)) == 1
        assert agent.changes.numbers_of(each.id for each in events) == {events[1].id: 1}

    def test_more_than_a_commit_holds(self, clock: Clock) -> None:
        agent = make_agent(MemoryEngine(clock=clock), clock)
        for number in range(250):
            agent.events.save(made(created_at=START + number))
        assert number_again(agent, EVER) == 250
        assert agent.changes.last_number() == 250


def test_a_subscription_gets_what_it_was_not_sent(agent: Agent, clock: Clock) -> None:
    client = Client(agent)
    client.send("REQ", "x", {"kinds": [1], "limit": 0})
    lost, later = store(agent, clock, 10, 60)

    assert deliver_again(agent, Period(START + 10, START + 20)) == 1

    sent = [frame[2]["id"] for frame in connections_of(agent).take(client.id)]
    assert sent == [lost.id]
    assert later.id not in sent


def test_a_live_feed_gets_each_entry_once(agent: Agent, clock: Clock) -> None:
    client, feed = LiveClient(agent), Feed(agent)
    client.watch({})
    feed.number(*store(agent, clock, 10, 20))  # and nobody told

    for _ in range(2):
        assert push_again(agent, EVER) == 2

    client.check([(entry.number, entry.id) for entry in feed.entries()])
