"""What is done every minute: holds whose packets have expired are released, and removals of events
that are not through go on."""

from typing import Any

from farthing.context import Agent
from farthing.ports.meter import Metric
from farthing.relay.removal import continue_removals


def release_holds(agent: Agent) -> dict[str, Any]:
    released = agent.ledger.release_expired(agent.now_ms)
    agent.meter.count(Metric.HOLDS_RELEASED, released)
    # An alarm on falling revenue needs a figure every minute, and no payment gives none.
    agent.meter.count(Metric.REVENUE, 0)
    return {"released": released, "removed": continue_removals(agent)}
