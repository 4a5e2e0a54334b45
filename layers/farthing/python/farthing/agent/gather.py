"""Gathering the graph from the relays of followed agents: follow lists, relay lists, addresses,
routes.

Each followed agent's own relay is asked for the agent's events and for the events that it has
gathered from others. So the graph spreads hop by hop, and every event is signed by its author.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from farthing.agent.follows import followed, newest
from farthing.agent.places import hints, peers_relay
from farthing.connector.client import peer_info_fields
from farthing.context import Agent
from farthing.ilp import address
from farthing.nostr.events import Event, InvalidEvent, parse_event, verify
from farthing.nostr.kinds import Kind
from farthing.nostr.messages import Refused
from farthing.ports.relays import ReadLimits, RelayFailed
from farthing.relay.policies import check_policies
from farthing.store.events import Outcome
from farthing.store.payment import OWNER
from farthing.store.table import StoreError

log = logging.getLogger("farthing")

_AT_ONCE = 8  # relays that are read in parallel
GRAPH_KINDS = (Kind.FOLLOWS, Kind.RELAY_LIST, Kind.ILP_PEER_INFO, Kind.ROUTE_ANNOUNCEMENT)
_OF_ANYBODY = (Kind.FOLLOWS, Kind.RELAY_LIST, Kind.ILP_PEER_INFO)  # routes go to followers alone


@dataclass
class Gathered:
    relays: int = 0
    failed: int = 0
    events: int = 0  # number of new events


def gather(agent: Agent) -> Gathered:
    """Ask every followed agent's relay. A relay that does not answer is skipped."""
    result, heard = Gathered(), frozenset(followed(agent))
    with ThreadPoolExecutor(_AT_ONCE) as readers:
        for found in readers.map(lambda place: _ask(agent, heard, *place), _places(agent)):
            if found is None:
                result.failed += 1
                continue
            result.relays += 1
            result.events += sum(_keep(agent, event) for event in _unknown(agent, found))
    return result


def _places(agent: Agent) -> list[tuple[str, str]]:
    """The relay of each followed agent: the relay in the owner's own list, or else the registered
    endpoint of the peer. Other sources are not trusted."""
    hinted = hints(agent)
    places = [(pubkey, hinted.get(pubkey) or peers_relay(agent, pubkey))
              for pubkey in followed(agent)[: agent.settings.max_gathered_relays]]  # fmt: skip
    return [(pubkey, url) for pubkey, url in places if url]


def _ask(agent: Agent, heard: frozenset[str], pubkey: str, url: str) -> list[Event] | None:
    """The events in a relay's answer that routing needs; None if the relay does not answer.

    Events are handled one by one, so that a relay's whole answer is never in memory.
    """
    settings = agent.settings
    filters = [
        {"authors": [pubkey], "kinds": [kind.value for kind in GRAPH_KINDS]},
        {
            "kinds": [kind.value for kind in _OF_ANYBODY],
            "limit": settings.max_gathered_events,
        },
    ]
    limits = ReadLimits(
        settings.max_gathered_events, settings.max_gathered_bytes, settings.gather_seconds
    )
    events: dict[str, Event] = {}
    try:
        for each in agent.relays.read(url, filters, limits):
            event = _wanted(agent, each, heard)
            if event is not None:
                events[event.id] = event
    except RelayFailed as error:
        log.warning("a key's relay cannot be read", extra={"key": pubkey, "reason": str(error)})
        return None
    return list(_of_agents(agent, events.values(), heard))


def _wanted(agent: Agent, value: Any, heard: frozenset[str]) -> Event | None:
    """The event, if it is well formed and describes the graph. Events of keys that are not followed
    are stored unpaid, so their size is limited."""
    try:
        event = parse_event(value)
    except InvalidEvent:
        return None
    if event.pubkey == agent.settings.pubkey:
        return None
    if event.pubkey in heard:
        return event if event.kind in GRAPH_KINDS else None
    small = len(event.to_json()) <= agent.settings.max_gathered_event_bytes
    return event if small and event.kind in _OF_ANYBODY else None


def _of_agents(agent: Agent, events: Collection[Event], heard: frozenset[str]) -> Iterator[Event]:
    """Events of followed keys, and of other keys that claim an ILP address. No route leads to or
    through any other key, so other keys' lists are not needed."""
    claimed = {
        event.pubkey
        for event in events
        if event.kind == Kind.ILP_PEER_INFO and _claims_address(event)
    }
    for event in events:
        if event.pubkey in heard or event.pubkey in claimed:
            yield event
        elif event.kind != Kind.ILP_PEER_INFO:
            info = newest(agent, event.pubkey, Kind.ILP_PEER_INFO)
            if info is not None and _claims_address(info):
                yield event


def _claims_address(info: Event) -> bool:
    """A route needs no more of the agents behind the first hop: neither endpoint nor prices."""
    return address.is_valid(peer_info_fields(info).get("ilp_address", ""))


def _unknown(agent: Agent, found: Iterable[Event]) -> Iterator[Event]:
    """The events that are not stored yet. Only their signatures have to be checked."""
    events = {event.id: event for event in found}
    stored = agent.events.get_many(events)
    return (event for event_id, event in events.items() if event_id not in stored)


def _keep(agent: Agent, event: Event) -> bool:
    """Whether the event is new here. One event that cannot be stored does not end the round."""
    try:
        verify(event)
        check_policies(agent, event)
        return agent.events.save(event, payment=OWNER) is Outcome.STORED
    except (InvalidEvent, Refused):
        return False
    except (StoreError, ValueError) as error:  # ValueError: the event is too large for an item
        log.warning("an event cannot be stored", extra={"event": event.id, "reason": str(error)})
        return False
