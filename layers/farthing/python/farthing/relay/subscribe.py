"""REQ and CLOSE: open a subscription, send what is stored, and stay for what comes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from farthing.nostr.messages import (
    ClientMessage,
    Prefix,
    Refused,
    Verb,
    check_subscription_id,
    eose,
    event_frame,
)
from farthing.relay.caller import Caller
from farthing.relay.effort import Effort
from farthing.relay.opening import Overtaken, check_room, send_stored
from farthing.relay.visibility import check_readable, visible_to
from farthing.store.events import StoredEvent
from farthing.store.planner import Visible
from farthing.store.subscriptions import Subscription, close_order, request_order


def req(agent: Agent, caller: Caller, message: ClientMessage) -> str | None:
    """Stored events go out as they are found; what is returned is the frame that ends them."""
    subscription_id = message.subscription_id()
    check_subscription_id(subscription_id)
    if agent.settings.aether and any(map(_asks_for_aether, message.parts[1:])):
        # Loaded where it is needed: its libraries take their time.
        from farthing.relay.aether import nostr_subscribe

        return nostr_subscribe.req(agent, caller, message, subscription_id)
    order = request_order(caller.time_ms)
    effort = Effort(agent, agent.settings.req_seconds)
    try:
        filters = parse_filters(agent, message)
        subscription = Subscription(caller.connection_id, subscription_id, order, filters)
        pubkeys = open_subscription(agent, caller, subscription)
        with effort:
            found = _find_stored(agent, filters, visible_to(pubkeys), effort)
            return _send_stored(agent, subscription, found, effort)
    except Overtaken:
        return None  # the later message is answered, and that answer is the one that counts
    except Exception:
        # The client is about to be told CLOSED: nothing may come after that.
        agent.subscriptions.unsubscribe(caller.connection_id, subscription_id, order + 1, agent.now)
        raise


def _asks_for_aether(value: object) -> bool:
    return isinstance(value, dict) and "aether" in value


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
        searches = message.verb == Verb.REQ and agent.search.is_on
        filters = [parse_filter(value, may_search=searches) for value in given]
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
    check_room(agent, {**standing, subscription.id: subscription.size})
    return frozenset(connection.pubkeys)


def _send_stored(
    agent: Agent, subscription: Subscription, found: Iterator[StoredEvent], effort: Effort
) -> str | None:
    frames = (event_frame(subscription.id, event.json) for event in found)
    listens = send_stored(agent, subscription.connection_id, frames, effort)
    return eose(subscription.id) if listens else None


def _find_stored(
    agent: Agent, filters: Sequence[Filter], visible: Visible[Event], effort: Effort
) -> Iterator[StoredEvent]:
    """What the filters match. Hits of a search come first, the best of them first (NIP-50)."""
    plain = [filter for filter in filters if filter.search is None]
    if len(plain) == len(filters):
        return agent.reader.find_any(filters, visible, effort.allowance)
    hits = _search(agent, filters, visible)
    rest = agent.reader.find_any(plain, visible, effort.allowance) if plain else iter(())
    return chain(hits.values(), (event for event in rest if event.id not in hits))


def _search(
    agent: Agent, filters: Sequence[Filter], visible: Visible[Event]
) -> dict[str, StoredEvent]:
    """Each hit is looked up: the index may know what has gone since."""
    hits: dict[str, StoredEvent] = {}
    for filter in filters:
        if filter.search is None:
            continue
        ids = agent.search.find(filter.search, agent.settings.max_search_hits)
        stored = agent.events.get_many(ids)
        found = (stored[each] for each in ids if each in stored)
        others = replace(filter, search=None)  # the index has decided on the words
        matching = (each for each in found if others.matches(each.event) and visible(each))
        hits.update((each.id, each) for each in islice(matching, filter.limit))
    return hits
