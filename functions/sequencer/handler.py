"""Stream of the events table: a number for every stored event."""

from farthing.handlers import runtime
from farthing.handlers.sockets import Event, Response, flush
from farthing.handlers.streams import arrivals, report_failures
from farthing.relay.sequence import number_arrivals

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    response = report_failures(
        event["Records"], lambda records: number_arrivals(agent, arrivals(records))
    )
    flush(agent)
    return response
