"""`farthing routes`: the routing table of this machine's agent."""

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from farthing.connector.forwarding import find_next_hop
from farthing.context import Agent
from farthing.ilp.address import is_prefix, is_valid
from farthing.ilp.fees import TYPICAL_AMOUNT, forwarding_fee
from farthing.settings import Settings
from farthing.store.ledger import Peer
from farthing.store.routes import Route
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import whole_number


def add_arguments(parser: ArgumentParser) -> None:
    parser.set_defaults(act=list_routes)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    about = "list the routes"
    actions.add_parser("list", help=about, description=about)
    about = "show the way of packets to an address"
    one = actions.add_parser("explain", help=about, description=about)
    one.set_defaults(act=explain_route)
    one.add_argument("address", help="ILP address, such as g.alice")
    about = "compute the table from follows (Spark)"
    one = actions.add_parser("rebuild", help=about, description=about)
    one.set_defaults(act=_rebuild)
    one.add_argument(
        "--input",
        type=Path,
        help="file or folder of events: JSON lines, a DynamoDB export or Parquet; the stored events"
        " if left out",
    )
    one.add_argument(
        "--hops", type=whole_number, default=6, help="most hops of a path; %(default)s if left out"
    )
    one.add_argument(
        "--force", action="store_true", help="replace the table even if the new one is much smaller"
    )
    one.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: Namespace, settings: Settings) -> int:
    status: int = arguments.act(arguments, settings)
    return status


def _rebuild(arguments: Namespace, settings: Settings) -> int:
    # Spark takes seconds to load, and only this action needs it.
    from infra.local.commands import rebuild

    if arguments.cloud:
        raise BookkeepingError("`farthing routes rebuild` works on a data folder only")
    try:
        return rebuild.rebuild(arguments, settings)
    except rebuild.ERRORS as error:
        raise BookkeepingError(str(error)) from None


def list_routes(_arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        live = agent.routes.live()
        if live is None:
            raise BookkeepingError("there is no routing table yet: farthing routes rebuild")
        built = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(live.built))
        print(f"generation {live.name}, {live.count} routes, built {built} UTC")
        print(f"{'prefix':<40}{'fee':>12}{'hops':>6}  next hop")
        routes = sorted(agent.routes.routes(live.name), key=lambda route: route.prefix)
        if live.count and not routes:
            raise BookkeepingError("all routes have expired: farthing routes rebuild")
        for route in routes:
            print(f"{route.prefix:<40}{route.fee:>12}{route.hops:>6}  {route.next_hop[:16]}")
    return 0


def explain_route(arguments: Namespace, settings: Settings) -> int:
    """Print the way of a packet to an address, by the same look-up that packets use."""
    address = arguments.address
    if not is_valid(address):
        raise BookkeepingError(f"{address!r} is not an ILP address")
    with offline_agent(settings) as agent:
        if is_prefix(agent.settings.own_ilp_address, address):
            print(f"{address} is this agent's own: packets are delivered here")
            return 0
        way = find_next_hop(agent, address)
        if way.peer is None and way.route is None:
            print(f"no route to {address}: packets are rejected (F02)")
            return 1
        print(f"address     {address}")
        if way.route is not None:
            _explain(way.route)
        elif way.peer is not None:
            print(f"prefix      {way.peer.ilp_address}, the address of a peer of ours")
        print(f"next hop    {_standing(way.peer)}")
        print(f"we keep     {_own_fee(agent)} of {TYPICAL_AMOUNT}")
    return 0 if way.peer is not None and way.peer.takes_packets else 1


def _explain(route: Route) -> None:
    print(f"prefix      {route.prefix}, claimed by {route.owner}")
    print(f"fee         {route.fee} over {hops(route.hops)}")
    for number, hop in enumerate(route.path, 1):
        print(f"  hop {number:<6}{hop}")


def _standing(peer: Peer | None) -> str:
    if peer is None:
        return "not a peer of ours: packets are rejected (F02)"
    if not peer.active:
        return f"peer {peer.id} is not active: farthing peers set {peer.id} --active"
    return f"peer {peer.id} at {peer.endpoint or 'no endpoint: packets are rejected (F02)'}"


def _own_fee(agent: Agent) -> int:
    settings = agent.settings
    return forwarding_fee(
        settings.forward_fee, settings.forward_fee_ppm, TYPICAL_AMOUNT, settings.forward_min_fee
    )


def hops(number: int) -> str:
    return f"{number} hop" if number == 1 else f"{number} hops"
