"""Contention as DynamoDB has it: of two transactions that meet at an item, one is refused with
nothing written, and whoever sent it tries again.

Here each one that is about to commit is overtaken by the next, and refused: the worst order, and
always the same one.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from farthing.agent.audit import audit
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival
from farthing.store.memory import MemoryEngine
from farthing.store.table import Contended
from tests.ilp.paying import PAYER, packet, paid_agent, send
from tests.relay.world import Clock, make_agent, signed
from tests.store.faulty import Fault, FaultyEngine


class Rivals:
    """Waiting to commit in between: whenever somebody is about to, the next one does so first."""

    def __init__(self, engine: FaultyEngine) -> None:
        self.waiting: list[Callable[[], object]] = []
        self.conflicts = 0
        engine.plan = self._overtake

    def _overtake(self, _: int, name: str) -> Fault | None:
        if name != "transact" or not self.waiting:
            return None
        self.conflicts += 1
        self.waiting.pop(0)()
        return Fault(Contended)


@pytest.fixture
def engine() -> FaultyEngine:
    return FaultyEngine(MemoryEngine(clock=Clock()))


@pytest.mark.parametrize("sequencers", [2, 5, 20])
def test_sequencers_that_meet_at_the_counter_number_each_event_once(
    engine: FaultyEngine, sequencers: int
) -> None:
    """Every shard of the stream has its own, and after a retry two have the same records."""
    agent = make_agent(engine, Clock())
    events = [signed(content=str(number)) for number in range(60)]
    for event in events:
        agent.events.save(event)
    arrivals = [Arrival(event.id, event.pubkey, event.kind) for event in events]
    rivals = Rivals(engine)
    given = [arrivals[first : first + 40] for first in range(sequencers)]
    rivals.waiting = [lambda some=some: number_events(agent, some) for some in given]  # type: ignore[misc]

    number_events(agent, arrivals)

    assert rivals.conflicts == sequencers
    log = list(agent.changes.between(0, agent.changes.last_number()))
    assert [change.number for change in log] == list(range(1, len(events) + 1))
    assert {change.id for change in log} == {event.id for event in events}


def pay_until_answered(engine: FaultyEngine, pay: Callable[[], Fulfill | Reject]) -> Fulfill:
    """As payers do: a packet that was refused for the moment (T..) is sent again."""
    for _ in range(10):
        reply = pay()
        if isinstance(reply, Fulfill):
            return reply
        assert reply.code.startswith("T"), reply
    raise AssertionError("never answered")


@pytest.mark.parametrize("payers", [2, 10, 40])
def test_payers_that_meet_at_one_balance_pay_once_each(engine: FaultyEngine, payers: int) -> None:
    agent = paid_agent(engine, Clock())
    peer = replace(PAYER, max_balance=10**12)
    prepares: list[Prepare] = [
        packet(agent, signed(content=f"note {number}")) for number in range(payers)
    ]
    fulfilled: list[Fulfill] = []

    def payer(prepare: Prepare) -> Callable[[], None]:
        return lambda: fulfilled.append(
            pay_until_answered(engine, lambda: send(agent, prepare, peer))
        )

    rivals = Rivals(engine)
    rivals.waiting = [payer(prepare) for prepare in prepares[1:]]
    payer(prepares[0])()

    assert rivals.conflicts == payers - 1
    assert len({each.fulfillment for each in fulfilled}) == payers
    receipts = list(agent.ledger.receipts(peer.id))
    assert len(receipts) == payers
    assert agent.ledger.balance(peer.id).owed == sum(each.amount for each in prepares)
    assert audit(agent).differences == []
