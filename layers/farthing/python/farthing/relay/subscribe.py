"""REQ and CLOSE: open a subscription, send the stored events, and then new ones."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter
from farthing.nostr.messages import (
    ClientMessage,
    Prefix,
    Refused,
    check_subscription_id,
    eose,
    event_frame_writer,
)
from farthing.relay.asked import Asked, asked_for
from farthing.relay.caller import Caller
from farthing.relay.effort import Effort
from farthing.relay.opening import Overtaken, check_room, save_subscription, send_stored
from farthing.relay.visibility import check_readable, visible_to
from farthing.store.events import StoredEvent
from farthing.store.reader import Visible
from farthing.store.subscriptions import Subscription, close_order, request_order


def req(agent: Agent, caller: Caller, message: ClientMessage) -> str | None:
    """Send stored events as they are found. Returns the frame that ends them."""
    subscription_id = message.subscription_id()
    check_subscription_id(subscription_id)
    if agent.settings.aether and any(map(_asks_for_aether, message.parts[1:])):
        # Imported here because the import is slow.
        from farthing.relay.aether import nostr_subscribe

        return nostr_subscribe.req(agent, caller, message, subscription_id)
    order = request_order(caller.time_ms)
    effort = Effort(agent, agent.settings.req_seconds)
    try:
        asked = asked_for(agent, message)
        subscription = Subscription(
            caller.connection_id, subscription_id, order, asked.filters, written=asked.text
        )
        pubkeys = open_subscription(agent, caller, subscription)
        with effort:
            found = _find_stored(agent, asked, visible_to(pubkeys), effort)
            return _send_stored(agent, subscription, found, effort)
    except Overtaken:
        return None  # a later message replaces this one, and only the later one is answered
    except Exception:
        # CLOSED is about to be sent: no event may come after it.
        agent.subscriptions.unsubscribe(caller.connection_id, subscription_id, order + 1, agent.now)
        raise


def _asks_for_aether(value: object) -> bool:
    return isinstance(value, dict) and "aether" in value


def close(agent: Agent, caller: Caller, message: ClientMessage) -> None:
    subscription_id = message.subscription_id()
    check_subscription_id(subscription_id)
    # The subscription is closed first, even if the client has exceeded its rate: that saves work.
    agent.engine.together(
        lambda: agent.subscriptions.unsubscribe(
            caller.connection_id, subscription_id, close_order(caller.time_ms), agent.now
        ),
        caller.arrive,
    )


def open_subscription(agent: Agent, caller: Caller, subscription: Subscription) -> frozenset[str]:
    """Open a subscription of a Nostr client. Returns the authenticated keys of the client."""
    closed = Refused(Prefix.ERROR, "closed by your CLOSE of the same millisecond")
    connection, sizes = save_subscription(agent, caller, subscription, closed)
    check_readable(subscription.filters, connection.pubkeys)
    check_room(agent, sizes)
    return frozenset(connection.pubkeys)


def _send_stored(
    agent: Agent, subscription: Subscription, found: Iterable[StoredEvent], effort: Effort
) -> str | None:
    write = event_frame_writer(subscription.id)
    frames = (write(event.octets) for event in found)
    listens = send_stored(agent, subscription.connection_id, frames, effort)
    return eose(subscription.id) if listens else None


def _find_stored(
    agent: Agent, asked: Asked, visible: Visible[Event], effort: Effort
) -> Iterable[StoredEvent]:
    """The events that match the filters. Hits of a search come first, best hits first (NIP-50)."""
    filters = asked.filters
    plain = [filter for filter in filters if filter.search is None]
    if len(plain) == len(filters):
        return agent.reader.answer(filters, asked.text, visible, effort.allowance)
    hits = _search(agent, filters, visible)
    rest = agent.reader.find_any(plain, visible, effort.allowance) if plain else iter(())
    return chain(hits.values(), (event for event in rest if event.id not in hits))


def _search(
    agent: Agent, filters: Sequence[Filter], visible: Visible[Event]
) -> dict[str, StoredEvent]:
    """Each hit is read from the store, because the index may name deleted events."""
    hits: dict[str, StoredEvent] = {}
    for filter in filters:
        if filter.search is None:
            continue
        ids = agent.search.find(filter.search, agent.settings.max_search_hits)
        stored = agent.events.get_many(ids)
        found = (stored[each] for each in ids if each in stored)
        others = replace(filter, search=None)  # the index has matched the words already
        matching = (each for each in found if others.matches(each.event) and visible(each))
        hits.update((each.id, each) for each in islice(matching, filter.limit))
    return hits
