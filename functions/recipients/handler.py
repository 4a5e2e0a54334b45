"""Queue of recipients: send an event to one part of its many subscribers."""

from farthing.aws.recipients import read_part
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Response, flush
from farthing.relay.fan_out import deliver_part

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    try:
        for record in event["Records"]:
            deliver_part(agent, read_part(record["body"]))
    finally:
        flush(agent)
    return {}
