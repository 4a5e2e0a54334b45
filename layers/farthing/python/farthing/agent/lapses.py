"""Idle purses, where the operator keeps money only for so long."""

from farthing.context import Agent
from farthing.store.purses import DAY_SECONDS


def lapse_idle_purses(agent: Agent) -> int:
    """Book what idle purses hold as lapsed. Looks at all purses, so once a day. How many lapsed."""
    days = agent.settings.purse_idle_days
    if not days or not agent.purses.claim_lapses(agent.now):
        return 0
    oldest = agent.now_ms - days * DAY_SECONDS * 1000
    idle = (purse for purse in agent.purses.all() if purse.drawable and purse.moved_ms < oldest)
    return sum(agent.purses.lapse(purse, agent.now_ms) for purse in idle)
