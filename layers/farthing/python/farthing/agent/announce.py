"""Kind 10033: the routes that we offer to our followers, from the current routing table."""

from collections.abc import Iterator
from heapq import nsmallest

from farthing.agent.identity import publish_own
from farthing.context import Agent
from farthing.ilp.fees import TYPICAL_AMOUNT, forwarding_fee
from farthing.nostr.events import Event
from farthing.nostr.kinds import Kind
from farthing.settings import Settings
from farthing.store.ledger import Peer
from farthing.store.routes import Route

# Other agents drop announcements that are a week old, so a valid announcement is renewed each day.
RENEW_SECONDS = 24 * 3600


def announce_routes(agent: Agent) -> Event | None:
    """Publish the nearest routes, as many as the settings allow. Returns None if nothing has
    changed."""
    live = agent.routes.live()
    if live is None:
        return None
    best = nsmallest(
        agent.settings.max_announced_routes,
        open_routes(agent, live.name),
        key=lambda route: (route.hops, route.fee, route.prefix),
    )
    tags = [_tag(agent, route) for route in best]
    return publish_own(agent, Kind.ROUTE_ANNOUNCEMENT, tags, "", RENEW_SECONDS if tags else None)


def open_routes(agent: Agent, generation: str) -> Iterator[Route]:
    """The routes that a packet could take now. A next hop that is only proposed gets no packets. If
    we announced a route through it, we would attract packets and refuse them."""
    hops: dict[str, Peer | None] = {}
    for route in agent.routes.routes(generation):
        if route.next_hop not in hops:
            hops[route.next_hop] = agent.ledger.peer_by_pubkey(route.next_hop)
        peer = hops[route.next_hop]
        if peer is not None and peer.takes_packets:
            yield route


def our_fee(settings: Settings) -> int:
    """Our fee for forwarding a packet of typical size."""
    return forwarding_fee(
        settings.forward_fee, settings.forward_fee_ppm, TYPICAL_AMOUNT, settings.forward_min_fee
    )


def _tag(agent: Agent, route: Route) -> list[str]:
    """The announcement of one route. Its cost is our fee plus the cost of the rest of the way."""
    distance = "direct" if route.hops <= 1 else f"{route.hops}-hop"
    return ["route", route.prefix, str(route.fee + our_fee(agent.settings)), distance]
