"""REQ and CLOSE: open a subscription, send what is stored, and stay for what comes."""

from collections.abc import Mapping
from itertools import islice

from farthing.context import Agent
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from farthing.nostr.messages import (
    ClientMessage,
    Prefix,
    Refused,
    check_subscription_id,
    eose,
    event_frame,
)
from farthing.ports.connections import Delivery
from farthing.relay.caller import Caller
from farthing.relay.effort import Effort
from farthing.relay.socket_delivery import BUSY, settle_deliveries
from farthing.relay.visibility import check_readable, visible_to
from farthing.store.planner import ScanTooLong
from farthing.store.subscriptions import Size, Subscription, close_order, request_order

_FRAMES_AT_ONCE = 100


class Overtaken(Exception):
    """A later message of the client has closed or replaced what this one asks for."""


class TooManySubscriptions(Refused):
    """The connection has as much open as it may."""

    def __init__(self, why: str) -> None:
        super().__init__(Prefix.ERROR, why)


def req(agent: Agent, caller: Caller, message: ClientMessage) -> str | None:
    """Stored events go out as they are found; what is returned is the frame that ends them."""
    subscription_id = message.subscription_id()
    check_subscription_id(subscription_id)
    order = request_order(caller.time_ms)
    effort = Effort(agent, agent.settings.req_seconds)
    try:
        filters = parse_filters(agent, message)
        subscription = Subscription(caller.connection_id, subscription_id, order, filters)
        pubkeys = open_subscription(agent, caller, subscription)
        with effort:
            return _send_stored(agent, subscription, pubkeys, effort)
    except Overtaken:
        return None  # the later message is answered, and that answer is the one that counts
    except Exception:
        # The client is about to be told CLOSED: nothing may come after that.
        agent.subscriptions.unsubscribe(caller.connection_id, subscription_id, order + 1, agent.now)
        raise


def close(agent: Agent, caller: Caller, message: ClientMessage) -> None:
    subscription_id = message.subscription_id()
    check_subscription_id(subscription_id)
    # First, so that it is done also for those who have sent too much: it saves work.
    agent.engine.together(
        lambda: agent.subscriptions.unsubscribe(
            caller.connection_id, subscription_id, close_order(caller.time_ms), agent.now
        ),
        caller.arrive,
    )


def parse_filters(agent: Agent, message: ClientMessage) -> list[Filter]:
    settings = agent.settings
    given = message.parts[1:]
    if not given:
        raise Refused(Prefix.INVALID, f"{message.verb} without a filter")
    if len(given) > settings.max_filters:
        raise Refused(Prefix.INVALID, f"more than {settings.max_filters} filters")
    try:
        filters = [parse_filter(value) for value in given]
    except InvalidFilter as error:
        raise Refused(Prefix.INVALID, str(error)) from None
    # Of all filters together: each value may cost a read now, and a write to stay live.
    if sum(filter.value_count() for filter in filters) > settings.max_filter_values:
        raise Refused(Prefix.INVALID, f"more than {settings.max_filter_values} values in filters")
    return [filter.with_limit(settings.default_limit, settings.max_limit) for filter in filters]


def open_subscription(agent: Agent, caller: Caller, subscription: Subscription) -> frozenset[str]:
    """Save the subscription, before anything stored is read: what comes in between is then sent
    twice at worst, and never missed. Who the caller is authenticated as."""
    connection, in_force, standing = agent.engine.together(
        caller.arrive,
        lambda: agent.subscriptions.subscribe(subscription, agent.now),
        lambda: agent.subscriptions.sizes(caller.connection_id),
    )
    if in_force > close_order(caller.time_ms):
        raise Overtaken
    if in_force > subscription.order:
        raise Refused(Prefix.ERROR, "closed by your CLOSE of the same millisecond")
    check_readable(subscription.filters, connection.pubkeys)
    _check_room(agent, {**standing, subscription.id: subscription.size})
    return frozenset(connection.pubkeys)


def _check_room(agent: Agent, subscriptions: Mapping[str, Size]) -> None:
    """A subscription is kept for as long as it is open, under every value that it is found by."""
    settings = agent.settings
    if len(subscriptions) > settings.max_subscriptions:
        raise TooManySubscriptions(f"more than {settings.max_subscriptions} subscriptions")
    if sum(size.values for size in subscriptions.values()) > settings.max_live_values:
        raise TooManySubscriptions(f"more than {settings.max_live_values} values in subscriptions")
    if sum(size.bytes for size in subscriptions.values()) > settings.max_live_bytes:
        raise TooManySubscriptions(f"more than {settings.max_live_bytes} bytes of subscriptions")


def _send_stored(
    agent: Agent, subscription: Subscription, pubkeys: frozenset[str], effort: Effort
) -> str | None:
    connection_id = subscription.connection_id
    found = agent.reader.find_any(subscription.filters, visible_to(pubkeys), effort.allowance)
    frames = (event_frame(subscription.id, event.json) for event in found)
    try:
        while chunk := list(islice(frames, _FRAMES_AT_ONCE)):
            effort.check_time()
            with effort.sending():
                delivery = agent.connections.post(connection_id, chunk)
            settle_deliveries(agent, [(connection_id, delivery)])
            if delivery in (Delivery.GONE, Delivery.SLOW):
                return None
            if delivery is Delivery.BUSY:
                raise Refused(Prefix.ERROR, BUSY)
    except ScanTooLong:
        raise Refused(Prefix.ERROR, "filter is too broad for its limit, narrow it") from None
    return eose(subscription.id)
