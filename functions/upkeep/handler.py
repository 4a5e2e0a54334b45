"""On a schedule, and once after a deployment: what the agent does by itself."""

from farthing.cloud import runtime
from farthing.cloud.sockets import Event, Response, flush
from farthing.relay.upkeep import keep_up

runtime.warm_up()


def handler(_event: Event, _context: object) -> Response:
    agent = runtime.agent()
    done = keep_up(agent)
    flush(agent)
    return done
