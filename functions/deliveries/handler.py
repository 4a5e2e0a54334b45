"""Queue of wakes: deliver events of paid subscriptions, by packets to their owners' addresses."""

from farthing.btp_nips.identity import Owner
from farthing.connector.subscriptions.pushing import deliver
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Response, flush
from farthing.ports.wakes import read_wake

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    try:
        for record in event["Records"]:
            owner, subscription_id = read_wake(record["body"])
            deliver(agent, Owner(owner), subscription_id)
    finally:
        flush(agent)
    return {}
