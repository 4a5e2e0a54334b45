"""Kind 10033: the routes that we offer to those who follow us, from the table in force."""

from farthing.agent import Agent
from farthing.nostr.events import Event
from farthing.nostr.kinds import Kind
from farthing.relay.identity import publish_own
from farthing.store.routes import Route


def announce_routes(agent: Agent) -> Event | None:
    """Publish the cheapest routes, as many as the settings allow; None if nothing has changed."""
    live = agent.routes.live()
    routes = [] if live is None else list(agent.routes.routes(live.name))
    best = sorted(routes, key=lambda route: (route.hops, route.fee, route.prefix))
    tags = [_tag(agent, route) for route in best[: agent.settings.max_announced_routes]]
    if not tags and live is None:
        return None
    return publish_own(agent, Kind.ROUTE_ANNOUNCEMENT, tags, "")


def _tag(agent: Agent, route: Route) -> list[str]:
    """What it costs through us: our own fee on top of the rest of the way."""
    distance = "direct" if route.hops <= 1 else f"{route.hops}-hop"
    return ["route", route.prefix, str(route.fee + agent.settings.forward_fee), distance]
