"""$connect: store the connection, with its challenge or with the mark that it speaks Aether."""

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
    # Browsers close the connection unless the offered subprotocol is chosen.
    return {**DONE, "headers": {SUBPROTOCOL_HEADER: AETHER_SUBPROTOCOL}} if offered else DONE
