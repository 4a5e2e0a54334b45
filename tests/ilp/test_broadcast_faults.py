"""A fault at any operation of a broadcast, on each engine: an event is paid once, and the budgets,
the outbox and the ledgers say the same."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from farthing.agent.audit import audit
from farthing.agent.broadcast import broadcast, deliver_due
from farthing.connector.origin import ACCOUNT
from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.store.outbox import Delivery, DeliveryState
from farthing.store.table import Engine, StoreError
from tests.ilp.test_broadcast import DAY, LEASE, BroadcastTown, price_of
from tests.ilp.test_forwarding import FEE
from tests.relay.world import START
from tests.store.faulty import Crash, Fault, FaultyEngine, at, never

FAULTS = {
    "refused": Fault(StoreError),
    "answer lost": Fault(StoreError, after=True),
    "killed before": Fault(Crash),
    "killed after": Fault(Crash, after=True),
}


class FaultyTown(BroadcastTown):
    """Alice pays Eve through Bob, whose fee she does not know: each delivery takes two packets."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.faulty = FaultyEngine(engine)
        super().__init__(folder)
        self.follow("alice", "bob")
        self.follow("bob", "eve")
        self.route("alice", bob="bob", eve="bob")
        self.route("bob", eve="eve")
        self.hubs("eve", broadcast_check_percent=0)

    def engine(self, name: str) -> Engine:
        return self.faulty if name == "alice" else super().engine(name)

    def restarted(self) -> Agent:
        """Alice as a new process has her: nothing is remembered."""
        self.change("alice")
        return self.alice

    def attempt(self, event: Event) -> None:
        agent = self.restarted()
        broadcast(agent, event)
        deliver_due(agent)

    def settle_down(self, event: Event) -> Delivery:
        """Without more faults, until nothing is left to do."""
        self.attempt(event)
        for _ in range(3):
            self.clock.now += 4 * LEASE
            (delivery,) = self.deliver(event)
        self.alice.ledger.release_expired(self.alice.now_ms)
        assert not delivery.is_open
        return delivery

    def spent(self) -> int:
        days = range(START // DAY, int(self.clock()) // DAY + 1)
        return sum(self.alice.outbox.spent_on(day) for day in days)

    def check_everywhere(self, paid: int) -> None:
        alice = self.alice.ledger
        assert list(alice.holds()) == []
        assert alice.balance(ACCOUNT)[:2] == (paid, 0)
        assert alice.balance("bob").payable == self.agent("bob").ledger.balance("alice").posted
        assert (self.spent(), alice.balance("bob").payable) == (paid, paid)
        (record,) = self.alice.outbox.relays()
        assert record.paid == paid


@pytest.fixture
def town(tmp_path: Path, engine: Engine) -> Iterator[FaultyTown]:
    town = FaultyTown(tmp_path, engine)
    yield town
    for each in town.engines:
        each.close()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_at_any_operation_pays_once_and_loses_no_budget(
    town: FaultyTown, fault: Fault
) -> None:
    first = town.note("without a fault")
    town.settle_down(first)  # also makes the account of broadcasts
    town.faulty.operations.clear()
    town.attempt(second := town.note("counted"))
    count = len(town.faulty.operations)
    assert count >= 20
    paid = 2 * (price_of(first) + FEE) + price_of(second) - price_of(first)

    for number in range(count):
        note = town.note(f"number {number}")
        # given a fault at one operation
        town.faulty.operations.clear()
        town.faulty.plan = at(number, fault)
        with suppress(Crash, StoreError):
            town.attempt(note)
        town.faulty.plan = never
        # when the same is done again
        delivery = town.settle_down(note)
        # then it is paid once, and all books say so
        assert (delivery.state, delivery.amount) == (DeliveryState.STORED, price_of(note) + FEE), (
            number
        )
        paid += delivery.amount
        town.check_everywhere(paid)
        found = town.alice.outbox.broadcast(note.id)
        assert found is not None
        assert found.spent == delivery.amount
    assert {name: audit(town.agent(name)).differences for name in ("alice", "bob", "eve")} == {
        "alice": [], "bob": [], "eve": [],
    }  # fmt: skip
