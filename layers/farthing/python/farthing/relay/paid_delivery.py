"""Paid subscriptions as a destination: a new event wakes the subscriptions that want it. What each
of them gets is read from the log by whoever delivers."""

from collections.abc import Collection, Mapping, Sequence

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.relay.destination import Destination, Source
from farthing.store.paid_subscriptions import PAID_INDEX, PaidSubscription


def _open_at(agent: Agent, places: Collection[str]) -> Mapping[str, PaidSubscription]:
    return agent.paid_subscriptions.open_at(places, agent.now)


def _wake_each(
    agent: Agent, wanting: Sequence[tuple[Event, PaidSubscription]]
) -> Sequence[tuple[Event, str]]:
    for owner, subscription_id in dict.fromkeys((each.owner, each.id) for _, each in wanting):
        agent.wakes.wake(owner, subscription_id)
    return ()


PAID = Destination("paid subscriptions", Source.NUMBERED, PAID_INDEX, _open_at, _wake_each)
