"""What the relays of followed agents know of the graph: follow lists, addresses, routes.

Each followed agent is asked at its own relay, for what it says of itself and for what it has
gathered of others. So the graph spreads hop by hop, and every event is its author's own, signed.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from farthing.agent.follows import followed, newest
from farthing.context import Agent
from farthing.nostr.events import Event, InvalidEvent, is_hex64, parse_event, verify
from farthing.nostr.kinds import Kind
from farthing.nostr.messages import Refused
from farthing.ports.outbound import origin_of
from farthing.ports.relays import RelayFailed
from farthing.relay.policies import check_policies
from farthing.store.events import Outcome
from farthing.store.payment import OWNER

log = logging.getLogger("farthing")

_AT_ONCE = 8  # relays that are read side by side
GRAPH_KINDS = (Kind.FOLLOWS, Kind.ILP_PEER_INFO, Kind.ROUTE_ANNOUNCEMENT)
_OF_ANYBODY = (Kind.FOLLOWS, Kind.ILP_PEER_INFO)  # routes are announced to followers alone


@dataclass
class Gathered:
    relays: int = 0
    failed: int = 0
    events: int = 0  # that are new to us


def gather(agent: Agent) -> Gathered:
    """Ask every followed agent's relay. One that does not answer is passed over."""
    result, heard = Gathered(), frozenset(followed(agent))
    with ThreadPoolExecutor(_AT_ONCE) as readers:
        for found in readers.map(lambda place: _ask(agent, *place), relays_of_followed(agent)):
            if found is None:
                result.failed += 1
                continue
            result.relays += 1
            result.events += sum(_keep(agent, event) for event in _unknown(agent, found, heard))
    return result


def relays_of_followed(agent: Agent) -> list[tuple[str, str]]:
    """Where each followed agent is read: at the relay that the owner's own list names, or else at
    the registered endpoint of the peer. Nowhere else, whatever others say."""
    hints = _hints(agent)
    places = [(pubkey, hints.get(pubkey) or _peers_relay(agent, pubkey))
              for pubkey in followed(agent)[: agent.settings.max_gathered_relays]]  # fmt: skip
    return [(pubkey, url) for pubkey, url in places if url]


def _hints(agent: Agent) -> dict[str, str]:
    """The relays that the owner's follow list names (NIP-02)."""
    follows = newest(agent, agent.settings.pubkey, Kind.FOLLOWS)
    tags = () if follows is None else follows.tags
    return {
        tag[1]: tag[2]
        for tag in tags
        if len(tag) > 2 and tag[0] == "p" and is_hex64(tag[1]) and is_relay_url(tag[2])
    }


def is_relay_url(url: str) -> bool:
    return url.startswith(("ws://", "wss://")) and origin_of("http" + url[2:]) is not None


def _peers_relay(agent: Agent, pubkey: str) -> str:
    """A peer's relay is at the root of the host that takes its packets."""
    peer = agent.ledger.peer_by_pubkey(pubkey)
    if peer is None or origin_of(peer.endpoint) is None:
        return ""
    parts = urlsplit(peer.endpoint)
    return f"{parts.scheme.replace('http', 'ws', 1)}://{parts.netloc}"


def _ask(agent: Agent, pubkey: str, url: str) -> list[Any] | None:
    most = agent.settings.max_gathered_events
    filters = [
        {"authors": [pubkey], "kinds": [kind.value for kind in GRAPH_KINDS]},
        {"kinds": [kind.value for kind in _OF_ANYBODY], "limit": most},
    ]
    try:
        return agent.relays.read(url, filters, most, agent.settings.gather_seconds)
    except RelayFailed as error:
        log.warning("the relay of %s cannot be read: %s", pubkey[:16], error)
        return None


def _unknown(agent: Agent, found: list[Any], heard: frozenset[str]) -> Iterator[Event]:
    """What is well formed, not stored yet, and of somebody who is heard: only that is worth a
    signature's check."""
    events: dict[str, Event] = {}
    for each in found:
        try:
            event = parse_event(each)
        except InvalidEvent:
            continue
        wanted = GRAPH_KINDS if event.pubkey in heard else _OF_ANYBODY
        if event.kind in wanted and event.pubkey != agent.settings.pubkey:
            events[event.id] = event
    stored = agent.events.get_many(events)
    return (event for event_id, event in events.items() if event_id not in stored)


def _keep(agent: Agent, event: Event) -> bool:
    try:
        verify(event)
        check_policies(agent, event)
    except (InvalidEvent, Refused):
        return False
    return agent.events.save(event, payment=OWNER) is Outcome.STORED
