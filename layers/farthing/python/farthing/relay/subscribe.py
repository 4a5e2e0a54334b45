"""REQ and CLOSE: open a subscription, send what is stored, and stay for what comes."""

from collections.abc import Iterator
from itertools import islice

from farthing.agent import Agent
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.nostr.messages import (
    ClientMessage,
    Prefix,
    Refused,
    check_subscription_id,
    closed,
    eose,
    event_frame,
)
from farthing.relay.caller import Caller
from farthing.relay.connections import Delivery
from farthing.relay.fan_out import settle_deliveries
from farthing.relay.visibility import check_readable, is_visible
from farthing.store.events import StoredEvent
from farthing.store.planner import ScanTooLong
from farthing.store.sessions import Subscription, close_order, request_order

_FRAMES_AT_ONCE = 100


def req(agent: Agent, caller: Caller, message: ClientMessage) -> str | None:
    """Stored events go out as they are found; what is returned is the frame that ends them."""
    subscription_id = message.subscription_id()
    try:
        check_subscription_id(subscription_id)
        filters = parse_filters(agent, message)
        subscription = Subscription(
            caller.connection_id, subscription_id, request_order(caller.time_ms), filters
        )
        pubkeys = _open(agent, caller, subscription)
        return _send_stored(agent, caller, subscription, pubkeys)
    except Refused as refused:
        return closed(subscription_id, str(refused))


def close(agent: Agent, caller: Caller, message: ClientMessage) -> None:
    subscription_id = message.subscription_id()
    agent.engine.together(
        caller.arrive,
        lambda: agent.sessions.unsubscribe(
            caller.connection_id, subscription_id, close_order(caller.time_ms), agent.now
        ),
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
    if any(filter.value_count() > settings.max_filter_values for filter in filters):
        raise Refused(Prefix.INVALID, f"more than {settings.max_filter_values} values in a filter")
    return [filter.with_limit(settings.default_limit, settings.max_limit) for filter in filters]


def _open(agent: Agent, caller: Caller, subscription: Subscription) -> frozenset[str]:
    """Save the subscription, before anything stored is read: what comes in between is then sent
    twice at worst, and never missed. Who the caller is authenticated as."""
    connection, settled, open_ids = agent.engine.together(
        caller.arrive,
        lambda: agent.sessions.subscribe(subscription, agent.now),
        lambda: agent.sessions.subscription_ids(caller.connection_id),
    )
    try:
        check_readable(subscription.filters, connection.pubkeys)
        if len({*open_ids, subscription.id}) > agent.settings.max_subscriptions:
            most = agent.settings.max_subscriptions
            raise Refused(Prefix.ERROR, f"more than {most} subscriptions")
    except Refused:
        agent.sessions.unsubscribe(
            caller.connection_id, subscription.id, subscription.order + 1, agent.now
        )
        raise
    if not settled:
        raise Refused(Prefix.ERROR, "a later message of yours has closed or replaced this")
    return frozenset(connection.pubkeys)


def _send_stored(
    agent: Agent, caller: Caller, subscription: Subscription, pubkeys: frozenset[str]
) -> str | None:
    frames = (
        event_frame(subscription.id, event.json)
        for event in visible(agent.reader.find_any(subscription.filters), pubkeys)
    )
    try:
        while chunk := list(islice(frames, _FRAMES_AT_ONCE)):
            delivery = agent.connections.post(caller.connection_id, chunk)
            if delivery in (Delivery.GONE, Delivery.SLOW):
                settle_deliveries(agent, [(caller.connection_id, delivery)])
                return None
    except ScanTooLong:
        agent.sessions.unsubscribe(
            caller.connection_id, subscription.id, subscription.order + 1, agent.now
        )
        raise Refused(Prefix.ERROR, "filter is too broad for its limit, narrow it") from None
    return eose(subscription.id)


def visible(events: Iterator[StoredEvent], pubkeys: frozenset[str]) -> Iterator[StoredEvent]:
    for event in events:
        if event.kind not in PRIVATE_KINDS or is_visible(event.event, pubkeys):
            yield event
