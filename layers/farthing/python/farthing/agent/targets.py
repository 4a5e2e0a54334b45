"""The relays for a broadcast event: those of the mentioned keys, those of the author's followers,
and hubs. Each group has its share. Relays that have lost paid events are left out."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import NamedTuple

from farthing.agent.follows import newest
from farthing.agent.places import relay_at, relays_to_reach, same_place
from farthing.connector.client import NotPayable, RelayTerms, terms_from_peer_info
from farthing.context import Agent
from farthing.nostr.events import Event, is_hex64
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.store.outbox import DeliveryState, RelayRecord
from farthing.store.planner import ScanTooLong

_DAY = 24 * 3600
_MOST_MENTIONED = 100


class Target(NamedTuple):
    relay: str  # WebSocket URL
    group: str
    pubkey: str = ""  # the relay's own key, if its kind 10032 is known


def targets_of(agent: Agent, event: Event) -> list[Target]:
    """The relays for an event, each once, in the group that comes first."""
    settings = agent.settings
    groups = {
        "mentioned": chain(
            _of_deleted(agent, event), _of_keys(agent, "mentioned", _mentioned(agent, event))
        ),
        "followers": _of_keys(agent, "followers", _followers(agent)),
        "hubs": (Target(same_place(url), "hubs") for url in settings.broadcast_hubs),
    }
    found: dict[str, Target] = {}
    for group, targets in groups.items():
        share = -(-settings.broadcast_relays * settings.broadcast_shares.get(group, 0) // 100)
        new = (each for each in targets if each.relay not in found and has_place(agent, each.relay))
        for target in islice(_distinct(new), share):
            found.setdefault(target.relay, target)
    return list(found.values())[: settings.broadcast_relays]


def _distinct(targets: Iterator[Target]) -> Iterator[Target]:
    seen: set[str] = set()
    for target in targets:
        if target.relay not in seen:
            seen.add(target.relay)
            yield target


def _of_deleted(agent: Agent, event: Event) -> Iterator[Target]:
    """The relays that have the events which a deletion names, as far as we placed them there."""
    if event.kind != Kind.DELETION:
        return
    for event_id in islice(filter(is_hex64, event.values("e")), _MOST_MENTIONED):
        found = agent.outbox.broadcast(event_id)
        for each in () if found is None else found.deliveries:
            if each.state is DeliveryState.STORED:
                yield Target(each.relay, "mentioned", each.pubkey)


def _mentioned(agent: Agent, event: Event) -> Iterator[str]:
    keys = dict.fromkeys(key for key in event.values("p") if is_hex64(key))
    ours = {agent.settings.pubkey, event.pubkey}
    return islice((key for key in keys if key not in ours), _MOST_MENTIONED)


def _followers(agent: Agent) -> Iterator[str]:
    """The keys whose stored follow lists name the owner. No keys if too many other events name the
    owner as well, because the number of events to read is limited."""
    owner = agent.settings.pubkey
    lists = Filter(
        kinds=frozenset({Kind.FOLLOWS.value}), tags={"p": frozenset({owner})},
        limit=agent.settings.broadcast_relays,
    )  # fmt: skip
    with suppress(ScanTooLong):
        yield from (each.pubkey for each in agent.reader.find(lists) if each.pubkey != owner)


def _of_keys(agent: Agent, group: str, keys: Iterator[str]) -> Iterator[Target]:
    """A key's own relay, if it has one, and the relays from which the key reads."""
    own_relay = same_place(agent.settings.socket_url)
    for key in keys:
        terms = terms_of(agent, key)
        place = "" if terms is None else relay_at(terms.endpoint)
        if place and same_place(place) != own_relay:
            yield Target(same_place(place), group, key)
        for url in relays_to_reach(agent, key):
            yield Target(url, group)


def terms_of(agent: Agent, pubkey: str) -> RelayTerms | None:
    """A relay's address and prices, from its own kind 10032."""
    info = newest(agent, pubkey, Kind.ILP_PEER_INFO)
    try:
        return None if info is None else terms_from_peer_info(info)
    except NotPayable:
        return None


def has_place(agent: Agent, relay: str) -> bool:
    return keeps_what_it_is_paid_for(agent, agent.outbox.relay(relay))


def keeps_what_it_is_paid_for(agent: Agent, record: RelayRecord) -> bool:
    """Whether a relay still has enough of the paid events that were read back. A loss is forgotten
    after some time."""
    settings = agent.settings
    forgiven = agent.now - record.last_lost >= settings.broadcast_pardon_days * _DAY
    looked = record.kept + record.lost
    return forgiven or record.lost * 100 <= settings.broadcast_max_lost_percent * looked
