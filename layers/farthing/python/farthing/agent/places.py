"""The relays of a key: from its kind 10002, from the hint in the owner's follow list, or at the
host of its ILP endpoint."""

from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from farthing.agent.follows import followed, newest
from farthing.context import Agent
from farthing.nostr.events import Event, is_hex64
from farthing.nostr.kinds import Kind
from farthing.nostr.relay_lists import read_relays, write_relays
from farthing.ports.outbound import origin_of

_LONGEST_URL = 256


def is_relay_url(url: str) -> bool:
    return (
        len(url) <= _LONGEST_URL
        and url.startswith(("ws://", "wss://"))
        and origin_of("http" + url[2:]) is not None
    )


def same_place(url: str) -> str:
    """One form for a relay's URLs: lists name a relay with and without a slash at the end."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}" + (
        f"?{parts.query}" if parts.query else ""
    )


def hints(agent: Agent) -> dict[str, str]:
    """The relays that the owner's follow list names (NIP-02)."""
    follows = newest(agent, agent.settings.pubkey, Kind.FOLLOWS)
    tags = () if follows is None else follows.tags
    return {
        tag[1]: tag[2]
        for tag in tags
        if len(tag) > 2 and tag[0] == "p" and is_hex64(tag[1]) and is_relay_url(tag[2])
    }


def relay_at(endpoint: str) -> str:
    """An agent's relay is at the root of the host of its ILP endpoint."""
    if origin_of(endpoint) is None:
        return ""
    parts = urlsplit(endpoint)
    return f"{parts.scheme.replace('http', 'ws', 1)}://{parts.netloc}"


def peers_relay(agent: Agent, pubkey: str) -> str:
    peer = agent.ledger.peer_by_pubkey(pubkey)
    return "" if peer is None else relay_at(peer.endpoint)


def relays_to_read(agent: Agent, pubkey: str, hint: str) -> list[str]:
    """The relays to which a followed key writes."""
    listed = _listed(agent, pubkey, write_relays)
    return listed or _ours_left_out(agent, [hint or peers_relay(agent, pubkey)])


def relays_to_reach(agent: Agent, pubkey: str) -> list[str]:
    """The relays from which a key reads."""
    return _listed(agent, pubkey, read_relays)


def _listed(agent: Agent, pubkey: str, named: Callable[[Event], list[str]]) -> list[str]:
    found = newest(agent, pubkey, Kind.RELAY_LIST)
    relays = [] if found is None else named(found)
    return _ours_left_out(agent, relays)[: agent.settings.follow_relays_per_key]


def _ours_left_out(agent: Agent, urls: Iterable[str]) -> list[str]:
    settings = agent.settings
    ours = {same_place(settings.socket_url), same_place(relay_at(settings.ilp_url))}
    places = dict.fromkeys(same_place(url) for url in urls if is_relay_url(url))
    return [url for url in places if url not in ours]


def feed_places(agent: Agent) -> dict[str, list[str]]:
    """The relays of followed keys, each with its keys. Relays with most keys come first, and the
    settings limit their number."""
    hinted = hints(agent)
    places: dict[str, list[str]] = {}
    for pubkey in followed(agent):
        for url in relays_to_read(agent, pubkey, hinted.get(pubkey, "")):
            places.setdefault(url, []).append(pubkey)
    order = sorted(places, key=lambda url: (-len(places[url]), url))
    return {url: places[url] for url in order[: agent.settings.max_feed_relays]}
