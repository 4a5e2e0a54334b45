"""$connect: note the connection, and its challenge, or that it speaks Aether."""

from farthing.handlers import runtime
from farthing.handlers.calls import Event, Response
from farthing.handlers.sockets import (
    AETHER_SUBPROTOCOL,
    DONE,
    SUBPROTOCOL_HEADER,
    offers_aether,
    opens_aether,
)
from farthing.relay.connect import connect

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent, context = runtime.agent(), event["requestContext"]
    offered = agent.settings.aether and offers_aether(event)
    marked = offered or (agent.settings.aether and opens_aether(event))
    connect(agent, context["connectionId"], context.get("domainName", ""), is_aether=marked)
    # What was offered has to be chosen, or browsers hang up.
    return {**DONE, "headers": {SUBPROTOCOL_HEADER: AETHER_SUBPROTOCOL}} if offered else DONE
