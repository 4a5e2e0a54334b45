"""$connect: note the connection and the challenge that it will be sent."""

from farthing.handlers import runtime
from farthing.handlers.calls import Event, Response
from farthing.handlers.sockets import DONE
from farthing.relay.connect import connect

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    context = event["requestContext"]
    connect(runtime.agent(), context["connectionId"], context.get("domainName", ""))
    return DONE
