"""Paid subscriptions as a destination: a new event wakes the matching subscriptions. The delivery
then reads the events from the log."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.relay.destination import Destination, Source
from farthing.store.paid_index import PAID_INDEX

if TYPE_CHECKING:  # imported with the first paid subscription
    from farthing.store.paid_records import PaidSubscription


def _open_at(agent: Agent, places: Collection[str]) -> "Mapping[str, PaidSubscription]":
    return agent.paid_subscriptions.open_at(places, agent.now)


def _wake_each(
    agent: Agent, wanting: "Sequence[tuple[Event, PaidSubscription]]"
) -> Sequence[tuple[Event, str]]:
    # A subscription that waits for its next attempt has a wake of its own, and then reads the log.
    now_ms = agent.now_ms
    ready = [each for _, each in wanting if each.trouble.retry_ms <= now_ms]
    for owner, subscription_id in dict.fromkeys((each.owner, each.id) for each in ready):
        agent.wakes.wake(owner, subscription_id)
    return ()


PAID = Destination("paid subscriptions", Source.NUMBERED, PAID_INDEX, _open_at, _wake_each)
