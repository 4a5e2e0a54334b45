"""Rounds of following and broadcasting, for schedules. On one machine threads do the same."""

from functools import partial
from typing import Any

from farthing.agent.broadcast import broadcast_new, deliver_due, rebroadcast
from farthing.agent.feeds import caching, catch_up_all, is_reading, is_rebroadcasting
from farthing.context import Agent


def read_feeds(agent: Agent) -> dict[str, Any]:
    """Look in once at every relay of followed keys, where the settings say so."""
    if not is_reading(agent):
        return {"relays": 0, "failed": 0}
    then = partial(rebroadcast, agent) if is_rebroadcasting(agent) else None
    looked = catch_up_all(agent, caching(agent, then=then))
    return {"relays": looked.relays, "failed": looked.failed}


def deliver_broadcasts(agent: Agent) -> dict[str, Any]:
    new = broadcast_new(agent) if agent.settings.broadcast_all else 0
    return {"new": new, "attempted": deliver_due(agent)}
