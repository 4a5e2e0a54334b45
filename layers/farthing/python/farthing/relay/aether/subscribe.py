"""SUBSCRIBE and UNSUBSCRIBE: open a subscription to Aether events, send what is stored, and stay
for what comes. The Nostr gateway opens its subscriptions here as well."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import ClassVar, Final

from farthing.aether.errors import AetherError, Code, InvalidMessage
from farthing.aether.filters import Filter
from farthing.context import Agent
from farthing.ports.connections import Delivery, Frame
from farthing.relay.caller import Caller
from farthing.relay.socket_delivery import settle_deliveries
from farthing.store.planner import ScanTooLong
from farthing.store.sessions import Connection
from farthing.store.spaces import AETHER
from farthing.store.subscriptions import (
    AETHER_EVENTS,
    Subscription,
    close_order,
    request_order,
)

_FRAMES_AT_ONCE: Final = 100

# The frame that brings the JSON of an event.
Write = Callable[[str], Frame]


class TooMuch(AetherError):
    """More subscriptions, or larger ones, than a connection may have."""

    code: ClassVar[Code] = Code.RATE_LIMITED


class Overtaken(Exception):
    """A later message of the client has closed or replaced what this one asks for. That message is
    answered, and this one is not."""


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
    subscription = Subscription(
        caller.connection_id, subscription_id, order, limited, AETHER_EVENTS, form
    )
    try:
        _open(agent, caller, subscription, check)
        return _send_stored(agent, caller, limited, write)
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
        lambda: agent.subscriptions.value_counts(caller.connection_id),
    )
    if in_force > close_order(caller.time_ms):
        raise Overtaken
    if in_force > subscription.order:
        raise InvalidMessage("closed by a message of the same millisecond")
    check(connection)
    values = {**standing, subscription.id: subscription.value_count}
    if len(values) > agent.settings.max_subscriptions:
        raise TooMuch(f"more than {agent.settings.max_subscriptions} subscriptions")
    if sum(values.values()) > agent.settings.max_live_values:
        raise TooMuch(f"more than {agent.settings.max_live_values} values in subscriptions")


def _send_stored(agent: Agent, caller: Caller, filters: Sequence[Filter], write: Write) -> bool:
    frames = (write(event.json) for event in agent.kept(AETHER).reader.find_any(filters))
    try:
        while chunk := list(islice(frames, _FRAMES_AT_ONCE)):
            delivery = agent.connections.post(caller.connection_id, chunk)
            settle_deliveries(agent, [(caller.connection_id, delivery)])
            if delivery in (Delivery.GONE, Delivery.SLOW):
                return False
    except ScanTooLong:
        raise InvalidMessage("filter is too broad for its limit, narrow it") from None
    return True
