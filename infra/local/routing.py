"""`farthing routes`: the routing table of this machine's agent."""

import time
from argparse import Namespace

from farthing.settings import Settings
from infra.local.bookkeeping import BookkeepingError, offline_agent


def list_routes(_arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        live = agent.routes.live()
        if live is None:
            raise BookkeepingError("there is no routing table yet: farthing routes rebuild")
        built = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(live.built))
        print(f"generation {live.name}, {live.count} routes, built {built} UTC")
        print(f"{'prefix':<40}{'fee':>12}{'hops':>6}  next hop")
        for route in sorted(agent.routes.routes(live.name), key=lambda route: route.prefix):
            print(f"{route.prefix:<40}{route.fee:>12}{route.hops:>6}  {route.next_hop[:16]}")
    return 0


def explain_route(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        route = agent.routes.lookup(arguments.address)
        if route is None:
            print(f"no route to {arguments.address}")
            return 1
        peer = agent.ledger.peer_by_pubkey(route.next_hop)
        print(f"address     {arguments.address}")
        print(f"prefix      {route.prefix}, claimed by {route.owner}")
        print(f"next hop    {route.next_hop} ({peer.id if peer else 'not a peer of ours'})")
        print(f"fee         {route.fee} over {route.hops} hops")
        for hop in route.path:
            print(f"            {hop}")
    return 0
