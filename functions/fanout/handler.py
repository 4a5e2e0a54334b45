"""Stream of the events table: new events to the subscriptions that want them."""

from farthing.handlers import runtime
from farthing.handlers.sockets import Event, Response, flush
from farthing.handlers.streams import new_events, report_failures
from farthing.relay.fan_out import fan_out
from farthing.store.spaces import NOSTR

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    response = report_failures(
        event["Records"], lambda records: fan_out(agent, new_events(records).get(NOSTR, []))
    )
    flush(agent)
    return response
