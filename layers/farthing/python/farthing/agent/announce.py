"""Kind 10033: the routes that we offer to those who follow us, from the table in force."""

from collections.abc import Iterator
from heapq import nsmallest

from farthing.agent.identity import publish_own
from farthing.context import Agent
from farthing.ilp.fees import TYPICAL_AMOUNT, forwarding_fee
from farthing.nostr.events import Event
from farthing.nostr.kinds import Kind
from farthing.store.ledger import Peer
from farthing.store.routes import Route

# Others drop announcements that are a week old, so one that still holds is said again each day.
RENEW_SECONDS = 24 * 3600


def announce_routes(agent: Agent) -> Event | None:
    """Publish the nearest routes, as many as the settings allow; None if nothing has changed."""
    live = agent.routes.live()
    if live is None:
        return None
    best = nsmallest(
        agent.settings.max_announced_routes,
        _open_routes(agent, live.name),
        key=lambda route: (route.hops, route.fee, route.prefix),
    )
    tags = [_tag(agent, route) for route in best]
    return publish_own(agent, Kind.ROUTE_ANNOUNCEMENT, tags, "", RENEW_SECONDS if tags else None)


def _open_routes(agent: Agent, generation: str) -> Iterator[Route]:
    """Those that a packet could take now. A next hop that is proposed only gets none, and a route
    through it, once announced, would draw packets here to be refused."""
    hops: dict[str, Peer | None] = {}
    for route in agent.routes.routes(generation):
        if route.next_hop not in hops:
            hops[route.next_hop] = agent.ledger.peer_by_pubkey(route.next_hop)
        peer = hops[route.next_hop]
        if peer is not None and peer.takes_packets:
            yield route


def _tag(agent: Agent, route: Route) -> list[str]:
    """What it costs through us: our own fee on top of the rest of the way."""
    settings = agent.settings
    fee = forwarding_fee(
        settings.forward_fee, settings.forward_fee_ppm, TYPICAL_AMOUNT, settings.forward_min_fee
    )
    distance = "direct" if route.hops <= 1 else f"{route.hops}-hop"
    return ["route", route.prefix, str(route.fee + fee), distance]
