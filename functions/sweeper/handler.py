"""On a schedule: release the holds of packets that have expired."""

from farthing.handlers import runtime
from farthing.handlers.sockets import Event, Response, flush
from farthing.ports.meter import Metric

runtime.warm_up()


def handler(_event: Event, _context: object) -> Response:
    agent = runtime.agent()
    released = agent.ledger.release_expired(agent.now_ms)
    agent.meter.count(Metric.HOLDS_RELEASED, released)
    # Nought is a figure and silence is none: an alarm on revenue could not see that it has ended.
    agent.meter.count(Metric.REVENUE, 0)
    flush(agent)
    return {"released": released}
