"""What the common messages cost by DynamoDB's rules, and how long one would wait for them."""

import pytest

from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.relay.fan_out import fan_out
from farthing.relay.moderation import rules
from farthing.store.sqlite import SqliteEngine
from infra.costs.counting import Cost, CountingEngine
from tests.relay.world import ALICE, START, Client, Clock, hex_id, make_agent, signed


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock) -> Agent:
    return make_agent(CountingEngine(sqlite), clock)


@pytest.fixture
def client(agent: Agent) -> Client:
    return Client(agent)


def cost(client: Client, *parts: object) -> Cost:
    engine = client.agent.engine
    assert isinstance(engine, CountingEngine)
    rules(client.agent)  # read once by a process, and then their version once in half a second
    engine.reset()
    assert client.send(*parts)[-1][0] in ("OK", "EOSE", "COUNT")
    return engine.reset()


def test_a_note_with_two_tags(client: Client) -> None:
    note = signed(tags=[["e", hex_id(1)], ["p", hex_id(2)]])

    spent = cost(client, "EVENT", note.as_dict())

    assert spent.write_units <= 8
    assert spent.read_units == 0
    assert spent.round_trips <= 2


def test_a_replacement_costs_at_most_16_write_units(client: Client) -> None:
    client.publish(signed(kind=0))

    spent = cost(client, "EVENT", signed(kind=0, created_at=START + 1).as_dict())

    assert spent.write_units <= 16  # postings in and out, and a transaction at twice the price
    assert spent.round_trips <= 4


def test_a_hundred_notes_of_an_author(client: Client) -> None:
    for number in range(110):
        client.publish(signed(created_at=START - number))

    filter = {"authors": [public_key_of(ALICE)], "kinds": [1], "limit": 100}
    spent = cost(client, "REQ", "x", filter)

    assert spent.round_trips <= 3
    assert spent.write_units <= 4
    assert spent.read_units <= 110


def test_events_by_id_take_at_most_two_round_trips(client: Client) -> None:
    events = [signed(content=str(number)) for number in range(10)]
    for event in events:
        client.publish(event)

    spent = cost(client, "REQ", "x", {"ids": [event.id for event in events]})

    assert spent.round_trips <= 2


def test_fan_out_costs_what_matches_and_not_what_is_open(client: Client) -> None:
    agent = client.agent
    for number in range(40):
        other = Client(agent, f"other {number}")
        for each in range(5):
            other.send("REQ", str(each), {"authors": [hex_id(number)], "limit": 0})
    client.send("REQ", "x", {"authors": [public_key_of(ALICE)], "limit": 0})
    agent.engine.reset()

    fan_out(agent, [signed()])

    spent = agent.engine.reset()
    assert spent.requests <= 6
    assert spent.read_units <= 6
    assert spent.round_trips <= 2
