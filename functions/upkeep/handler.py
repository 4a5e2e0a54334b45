"""On a schedule, and once after a deployment: what the agent does by itself."""

from farthing.agent.upkeep import keep_up
from farthing.handlers import runtime
from farthing.handlers.sockets import Event, Response, flush

runtime.warm_up()


def handler(_event: Event, _context: object) -> Response:
    agent = runtime.agent()
    done = keep_up(agent)
    flush(agent)
    return done
