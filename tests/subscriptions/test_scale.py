"""What an event costs follows from the subscriptions that it matches, not from all there are."""

from dataclasses import replace

import pytest

from farthing.btp_nips.account import Account
from farthing.btp_nips.identity import key_owner
from farthing.btp_nips.lifecycle import State
from farthing.btp_nips.messages import Delivery
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import live
from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.nostr.filters import parse_filter
from farthing.store.memory import MemoryEngine
from farthing.store.paid_records import Agreed, PaidSubscription, Standing
from infra.costs.counting import Cost, CountingEngine
from tests.relay.world import BOB, Clock, make_agent
from tests.subscriptions.world import QueuedWakes, note, publish, wakes_of

MATCHES = 10


def open_many(agent: Agent, number: int) -> None:
    """Subscriptions by push, each to an author of its own, but for ten to one author."""
    terms = agent.settings.subscription_fees.terms(Model.STREAMING, (), 3600)
    store = agent.paid_subscriptions
    for index in range(number):
        author = public_key_of(BOB) if index < MATCHES else f"{index:064x}"
        filters = (parse_filter({"authors": [author]}),)
        agreed = Agreed(terms, filters, Delivery.PUSH, "payer", reply_to="g.far")
        new = PaidSubscription(
            owner=key_owner(f"{index:064x}"), id="s", agreed=agreed, account=Account(1000, live(0)),
            state=State.ACTIVE, began=agent.now, expires_at=agent.now + 3600,
            last_timestamp=agent.now, since=0, stored=0, floor=live(0), version=1, generation=1,
            credited=1000,
        )  # fmt: skip
        writes = store.create(new, Standing(None, None), b"", most=10, most_of_peer=10**9)
        agent.engine.transact(writes)
        store.write_hints(new)


def cost_of_an_event(number: int) -> Cost:
    clock = Clock()
    agent = make_agent(MemoryEngine(clock=clock), clock)
    open_many(agent, number)
    counting = CountingEngine(agent.engine)
    counted = replace(agent, engine=counting, wakes=QueuedWakes(), _parts={})
    publish(counted, note())  # a first one, for what is remembered
    counting.reset()
    wakes_of(counted).waiting.clear()
    publish(counted, note())
    assert len(wakes_of(counted).waiting) == MATCHES
    return counting.reset()


@pytest.mark.parametrize("many", [3_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_the_cost_of_an_event_follows_its_matches(many: int) -> None:
    few, all_of_them = cost_of_an_event(1_000), cost_of_an_event(many)

    assert all_of_them.read_units <= 1.2 * few.read_units
    assert all_of_them.write_units <= 1.2 * few.write_units
    assert all_of_them.requests <= 1.2 * few.requests
