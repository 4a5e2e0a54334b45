"""Stream of the change log: new entries to live CHANGES subscriptions."""

from farthing.handlers import runtime
from farthing.handlers.sockets import Event, Response, flush
from farthing.handlers.streams import new_entries, report_failures
from farthing.relay.changes import push_changes
from farthing.store.spaces import NOSTR

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    response = report_failures(
        event["Records"], lambda records: push_changes(agent, new_entries(records).get(NOSTR, []))
    )
    flush(agent)
    return response
