"""Queue of the outbox: send an event to the relays that are due, and pay each of them."""

from farthing.agent.broadcast import answer_wake
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Response, flush
from farthing.ports.broadcast_wakes import read_broadcast_wake

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    try:
        for record in event["Records"]:
            answer_wake(agent, read_broadcast_wake(record["body"]))
    finally:
        flush(agent)
    return {}
