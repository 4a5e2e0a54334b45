"""New events to the subscriptions that want them. At least once, and to nobody who must not see.

A call serves so many recipients by itself. Of more, it makes parts, and leaves each part to a call
of its own: a note for a hundred thousand subscribers is sent by many calls side by side, and a call
that fails repeats its part and not the whole.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice

from farthing.context import Agent
from farthing.nostr.events import Event, known_event
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.nostr.messages import event_frame
from farthing.ports.connections import Delivery
from farthing.ports.meter import Metric
from farthing.ports.recipients import Part
from farthing.relay.visibility import is_visible
from farthing.store.sessions import Place, Subscription

log = logging.getLogger("farthing")

# Told to a client that is not sent what it asked for, because the way to all clients is full.
BUSY = "too many messages are under way to clients, try again"
# After so many attempts, over some minutes, an event that is only wanted live is too late.
_ATTEMPTS = 6

Recipient = tuple[Event, Subscription]
Candidates = Sequence[tuple[Event, Sequence[Place]]]


def fan_out(agent: Agent, events: Sequence[Event]) -> None:
    here, later = _divide(agent.sessions.candidates(events), agent.recipients.most_at_once)
    if later:
        agent.recipients.put(
            [part for event, places in later for part in _parts(agent, event, places)]
        )
    _deliver(agent, here, attempt=0)


def deliver_part(agent: Agent, part: Part) -> None:
    """Send an event to those of a part's recipients that are still there and want it."""
    places = [Place(*place) for place in part.places]
    _deliver(agent, [(known_event(part.event), places)], part.attempt)


def _divide(candidates: Candidates, most: int) -> tuple[Candidates, Candidates]:
    """Those whose recipients one call can serve, all together; and the rest."""
    here, later = [], []
    for event, places in candidates:
        if len(places) <= most:
            most -= len(places)
            here.append((event, places))
        else:
            later.append((event, places))
    return here, later


def _parts(agent: Agent, event: Event, places: Iterable[Place], attempt: int = 0) -> Iterator[Part]:
    json, waiting = event.to_json(), iter(places)
    while some := list(islice(waiting, agent.recipients.most_at_once)):
        yield Part(json, some, attempt)


def _deliver(agent: Agent, candidates: Candidates, attempt: int) -> None:
    recipients = [
        (event, subscription)
        for event, subscription in agent.sessions.matching(candidates)
        if _may_see(agent, event, subscription)
    ]
    busy: list[Recipient] = []
    json = cache(Event.to_json)
    while recipients:
        now, recipients = _one_each(recipients)
        # Made as they go out: all at once, they would take the memory of every client's copy.
        frames = (
            (subscription.connection_id, event_frame(subscription.id, json(event)))
            for event, subscription in now
        )
        troubles = agent.connections.post_each(frames)
        settle_deliveries(agent, troubles.items())
        if len(troubles) < len(now):
            agent.meter.count(Metric.EVENTS_DELIVERED, len(now) - len(troubles))
        # What comes later to the same client waits with what came first, in order.
        busy += _among([*now, *recipients], troubles, Delivery.BUSY)
        recipients = _not_among(recipients, troubles)
    if busy:
        _postpone(agent, busy, attempt + 1)


def _one_each(
    recipients: Sequence[Recipient],
) -> tuple[list[Recipient], list[Recipient]]:
    """The first for each connection, and the rest: so it is known which of them was not taken."""
    seen: set[str] = set()
    first: list[Recipient] = []
    rest: list[Recipient] = []
    for each in recipients:
        connection_id = each[1].connection_id
        (rest if connection_id in seen else first).append(each)
        seen.add(connection_id)
    return first, rest


def _among(
    recipients: Iterable[Recipient],
    troubles: dict[str, Delivery],
    delivery: Delivery,
) -> list[Recipient]:
    return [each for each in recipients if troubles.get(each[1].connection_id) is delivery]


def _not_among(recipients: Iterable[Recipient], troubles: dict[str, Delivery]) -> list[Recipient]:
    """Those who can be sent more: another frame may be small enough."""
    on = (None, Delivery.TOO_LARGE)
    return [each for each in recipients if troubles.get(each[1].connection_id) in on]


def _postpone(agent: Agent, busy: Sequence[Recipient], attempt: int) -> None:
    if attempt >= _ATTEMPTS:
        log.warning("gave up on %d deliveries after %d attempts", len(busy), attempt)
        agent.meter.count(Metric.DELIVERIES_GIVEN_UP, len(busy))
        return
    by_event: dict[Event, list[Place]] = {}
    for event, subscription in busy:
        place = Place(subscription.connection_id, subscription.id, subscription.order)
        by_event.setdefault(event, []).append(place)
    agent.recipients.put(
        [part for event in by_event for part in _parts(agent, event, by_event[event], attempt)]
    )


def _may_see(agent: Agent, event: Event, subscription: Subscription) -> bool:
    if event.kind not in PRIVATE_KINDS:
        return True
    # Looked up only here: few events are private, and who is authenticated may have changed.
    connection = agent.sessions.get(subscription.connection_id)
    return connection is not None and is_visible(event, connection.pubkeys)


def settle_deliveries(agent: Agent, deliveries: Iterable[tuple[str, Delivery]]) -> None:
    """Draw the consequences of what became of frames on their way to clients."""
    for connection_id, delivery in deliveries:
        match delivery:
            case Delivery.GONE:
                agent.meter.count(Metric.CONNECTIONS_FORGOTTEN)
                agent.sessions.disconnect(connection_id)
            case Delivery.SLOW:
                agent.meter.count(Metric.CLIENTS_TOO_SLOW)
                agent.connections.close(connection_id)
            case Delivery.TOO_LARGE:
                agent.meter.count(Metric.FRAMES_TOO_LARGE)
            case Delivery.BUSY:
                agent.meter.count(Metric.DELIVERIES_POSTPONED)
