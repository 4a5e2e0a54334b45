"""$disconnect: forget the connection. API Gateway may not send it; the records expire then."""

from farthing.handlers import runtime
from farthing.handlers.calls import Event, Response
from farthing.handlers.sockets import DONE
from farthing.relay.connect import disconnect

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    disconnect(runtime.agent(), event["requestContext"]["connectionId"])
    return DONE
