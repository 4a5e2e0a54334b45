"""SUBSCRIBE and UNSUBSCRIBE: open a subscription to Aether events, send what is stored, and stay
for what comes. The Nostr gateway opens its subscriptions here as well."""

from collections.abc import Callable, Sequence

from farthing.aether.errors import InvalidMessage
from farthing.aether.filters import Filter
from farthing.context import Agent
from farthing.ports.connections import Frame
from farthing.relay.caller import Caller
from farthing.relay.effort import Effort
from farthing.relay.opening import Overtaken, check_room, send_stored
from farthing.store.sessions import Connection
from farthing.store.spaces import AETHER
from farthing.store.subscriptions import (
    AETHER_EVENTS,
    Subscription,
    close_order,
    request_order,
)

# The frame that brings the JSON of an event.
Write = Callable[[str], Frame]


def check_values(agent: Agent, filters: Sequence[Filter]) -> None:
    """Of all filters together: each value may cost a read now, and a write to stay live."""
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
    check: Callable[[Connection], None] = lambda _: None,
) -> bool:
    """Stored events go out, newest first. Whether the client still listens. `check` refuses a
    connection that may not ask in this way."""
    settings = agent.settings
    check_values(agent, filters)
    limited = [each.with_limit(settings.default_limit, settings.max_limit) for each in filters]
    order = request_order(caller.time_ms)
    effort = Effort(agent, settings.req_seconds)
    subscription = Subscription(
        caller.connection_id, subscription_id, order, limited, AETHER_EVENTS, form
    )
    try:
        _open(agent, caller, subscription, check)
        with effort:
            found = agent.kept(AETHER).reader.find_any(limited, allowance=effort.allowance)
            frames = (write(event.json) for event in found)
            return send_stored(agent, caller.connection_id, frames, effort)
    except Overtaken:
        raise
    except Exception:
        # The client is about to be told of an error: nothing may come after that.
        agent.subscriptions.unsubscribe(caller.connection_id, subscription_id, order + 1, agent.now)
        raise


def unsubscribe(agent: Agent, caller: Caller, subscription_id: str) -> None:
    order = close_order(caller.time_ms)
    agent.subscriptions.unsubscribe(caller.connection_id, subscription_id, order, agent.now)


def _open(
    agent: Agent,
    caller: Caller,
    subscription: Subscription,
    check: Callable[[Connection], None],
) -> None:
    """Save the subscription before anything stored is read: what comes in between is then sent
    twice at worst, and never missed."""
    connection, in_force, standing = agent.engine.together(
        caller.arrive,
        lambda: agent.subscriptions.subscribe(subscription, agent.now),
        lambda: agent.subscriptions.sizes(caller.connection_id),
    )
    if in_force > close_order(caller.time_ms):
        raise Overtaken
    if in_force > subscription.order:
        raise InvalidMessage("closed by a message of the same millisecond")
    check(connection)
    check_room(agent, {**standing, subscription.id: subscription.size})
