"""Stream of the events table: a number for every stored event."""

from farthing.cloud import runtime
from farthing.cloud.sockets import Event, Response, flush
from farthing.cloud.streams import arrivals, report_failures
from farthing.relay.sequence import number_events

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    response = report_failures(
        event["Records"], lambda records: number_events(agent, arrivals(records))
    )
    flush(agent)
    return response
