"""What a paid note costs in DynamoDB's units and in round trips one after another."""

from typing import Any

import pytest

from farthing.connector.requests import OCTETS, receive_packet
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, decode_reply, encode
from farthing.relay.moderation import rules
from farthing.store.sqlite import SqliteEngine
from infra.costs.counting import Cost, CountingEngine
from tests.ilp.paying import TOKEN, note, packet, paid_agent
from tests.relay.world import Clock, signed

TAGS = [["t", "farthing"], ["p", "b" * 64]]


@pytest.fixture
def counting(sqlite: SqliteEngine, clock: Clock) -> CountingEngine:
    engine = CountingEngine(sqlite)
    paid_agent(engine, clock)
    return engine


@pytest.fixture
def agent(counting: CountingEngine, clock: Clock) -> Agent:
    return paid_agent(counting, clock)


def cost_of(agent: Agent, engine: CountingEngine, body: bytes, **headers: str) -> tuple[Any, Cost]:
    given = {"content-type": OCTETS, "authorization": f"Bearer {TOKEN}", **headers}
    rules(agent)  # read once by a process, and then their version once in half a second
    engine.reset()
    reply = decode_reply(receive_packet(agent, given, body).body)
    return reply, engine.reset()


def test_a_paid_note_with_two_tags(agent: Agent, counting: CountingEngine) -> None:
    body = encode(packet(agent, note("a note of the usual length, say a sentence", tags=TAGS)))
    reply, cost = cost_of(agent, counting, body)
    assert isinstance(reply, Fulfill)
    # Six postings, the rate counter, and event, receipt and balance at the double price.
    assert cost.write_units == 13
    assert cost.write_units <= 14
    # Who is it; rate, balance and event; postings; the transaction.
    assert cost.round_trips == 4
    # A second payment of the same peer: it is known for a while.
    body = encode(packet(agent, note("another", tags=TAGS)))
    _, second = cost_of(agent, counting, body)
    assert (second.write_units, second.round_trips) == (13, 3)
    assert second.read_units < cost.read_units


def test_a_repeat_costs_only_looks(agent: Agent, counting: CountingEngine) -> None:
    body = encode(packet(agent, note(tags=TAGS)))
    cost_of(agent, counting, body)
    reply, cost = cost_of(agent, counting, body)
    assert isinstance(reply, Fulfill)
    # The rate counter; then the receipt, for the amount that was paid.
    assert (cost.write_units, cost.round_trips) == (1, 2)


def test_a_request_id_costs_its_claim_and_its_answer(
    agent: Agent, counting: CountingEngine
) -> None:
    body = encode(packet(agent, note(tags=TAGS)))
    _, cost = cost_of(agent, counting, body, **{"request-id": "r"})
    assert (cost.write_units, cost.round_trips) == (15, 6)


def test_an_amount_that_is_too_small_costs_one_look(agent: Agent, counting: CountingEngine) -> None:
    """Whether it was enough when the same packet came before."""
    cost_of(agent, counting, encode(packet(agent, note("one"))))
    _, cost = cost_of(agent, counting, encode(packet(agent, note("two"), amount=0)))
    assert (cost.write_units, cost.read_units, cost.round_trips) == (0, 1, 1)


@pytest.mark.parametrize("change", ["junk", "price", "condition"])
def test_a_packet_refused_unread_costs_only_the_look_up_of_its_peer(
    agent: Agent, counting: CountingEngine, change: str
) -> None:
    prepare = {
        "junk": packet(agent, note(), data=b"junk"),
        "price": packet(agent, note(), amount=0, condition=bytes(32)),
        "condition": packet(agent, note(), condition=bytes(32)),
    }[change]
    _, cost = cost_of(agent, counting, encode(prepare))
    assert (cost.write_units, cost.round_trips) == (0, 1)


def test_a_version_and_an_ephemeral_event(agent: Agent, counting: CountingEngine) -> None:
    _, first = cost_of(agent, counting, encode(packet(agent, signed(kind=0))))
    _, ephemeral = cost_of(agent, counting, encode(packet(agent, signed(kind=20001))))
    assert first.round_trips <= 5
    assert ephemeral.write_units == 5  # receipt and balance, and the rate counter
