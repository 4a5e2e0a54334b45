"""The work of every minute: release the holds of expired packets, end paid subscriptions whose time
is over, and continue unfinished removals of events."""

from typing import Any

from farthing.connector.subscriptions.sweeping import sweep_subscriptions
from farthing.context import Agent
from farthing.ports.meter import Metric
from farthing.relay.removal import continue_removals


def sweep(agent: Agent) -> dict[str, Any]:
    released = agent.ledger.release_expired(agent.now_ms)
    agent.meter.count(Metric.HOLDS_RELEASED, released)
    # An alarm on falling revenue needs a figure every minute, also in a minute without payments.
    agent.meter.count(Metric.REVENUE, 0)
    return {
        "released": released,
        "ended": sweep_subscriptions(agent),
        "removed": continue_removals(agent),
    }
