"""SUBSCRIBE and UNSUBSCRIBE: open a subscription to Aether events, send the stored events, and then
new ones. The Nostr gateway opens its subscriptions here as well."""

from collections.abc import Callable, Sequence

from farthing.aether.errors import InvalidMessage
from farthing.aether.filters import Filter
from farthing.context import Agent
from farthing.ports.connections import Frame
from farthing.relay.caller import Caller
from farthing.relay.effort import Effort
from farthing.relay.opening import Overtaken, check_room, save_subscription, send_stored
from farthing.store.spaces import AETHER
from farthing.store.subscriptions import (
    AETHER_EVENTS,
    Subscription,
    close_order,
    request_order,
)

# Makes the frame around the JSON of an event.
Write = Callable[[str], Frame]


def check_values(agent: Agent, filters: Sequence[Filter]) -> None:
    """Check the number of values in all filters together. Each value may cost a read now, and a
    write for live events."""
    most = agent.settings.max_filter_values
    if sum(filter.value_count() for filter in filters) > most:
        raise InvalidMessage(f"filters: expected at most {most} values")


def subscribe(
    agent: Agent,
    caller: Caller,
    subscription_id: str,
    filters: Sequence[Filter],
    *,
    form: str,
    write: Write,
) -> bool:
    """Send stored events, newest first. Returns whether the client is still connected."""
    settings = agent.settings
    check_values(agent, filters)
    limited = [each.with_limit(settings.default_limit, settings.max_limit) for each in filters]
    order = request_order(caller.time_ms)
    effort = Effort(agent, settings.req_seconds)
    subscription = Subscription(
        caller.connection_id, subscription_id, order, limited, AETHER_EVENTS, form
    )
    try:
        closed = InvalidMessage("closed by a message of the same millisecond")
        _, sizes = save_subscription(agent, caller, subscription, closed)
        check_room(agent, sizes)
        with effort:
            found = agent.kept(AETHER).reader.find_any(limited, allowance=effort.allowance)
            frames = (write(event.json) for event in found)
            return send_stored(agent, caller.connection_id, frames, effort)
    except Overtaken:
        raise
    except Exception:
        # An error is about to be sent: no event may come after it.
        agent.subscriptions.unsubscribe(caller.connection_id, subscription_id, order + 1, agent.now)
        raise


def unsubscribe(agent: Agent, caller: Caller, subscription_id: str) -> None:
    order = close_order(caller.time_ms)
    agent.subscriptions.unsubscribe(caller.connection_id, subscription_id, order, agent.now)
