"""Idle purses lapse after a time that the operator sets."""

from farthing.context import Agent
from farthing.store.purses import DAY_SECONDS


def lapse_idle_purses(agent: Agent) -> int:
    """Book the balances of idle purses as lapsed. Reads all purses, so runs once a day. Returns the
    number of lapsed purses."""
    days = agent.settings.purse_idle_days
    if not days or not agent.purses.claim_lapses(agent.now):
        return 0
    oldest = agent.now_ms - days * DAY_SECONDS * 1000
    idle = (purse for purse in agent.purses.all() if purse.drawable and purse.moved_ms < oldest)
    return sum(agent.purses.lapse(purse, agent.now_ms) for purse in idle)
