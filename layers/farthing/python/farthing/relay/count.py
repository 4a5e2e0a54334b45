"""COUNT (NIP-45): how many stored events match, without sending them."""

from farthing.context import Agent
from farthing.nostr.messages import (
    ClientMessage,
    Prefix,
    Refused,
    check_subscription_id,
    closed,
)
from farthing.nostr.messages import count as count_frame
from farthing.relay.asked import parse_filters
from farthing.relay.caller import Caller
from farthing.relay.effort import Effort
from farthing.relay.visibility import check_readable, visible_to
from farthing.store.planner import ScanTooLong


def count(agent: Agent, caller: Caller, message: ClientMessage) -> str:
    subscription_id = message.subscription_id()
    try:
        check_subscription_id(subscription_id)
        filters = parse_filters(agent, message)
        pubkeys = caller.arrive().pubkeys
        check_readable(filters, pubkeys)
        with Effort(agent, agent.settings.req_seconds) as effort:
            number, approximate = agent.reader.count_any(
                filters, agent.settings.count_exactly, visible_to(pubkeys), effort.allowance
            )
    except ScanTooLong:
        return closed(subscription_id, f"{Prefix.ERROR}: filter is too broad, narrow it")
    except Refused as refused:
        return closed(subscription_id, str(refused))
    return count_frame(subscription_id, number, approximate=approximate)
