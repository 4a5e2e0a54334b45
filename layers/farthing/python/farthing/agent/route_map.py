"""The public map of our routes: the current routing table, and the peers in it.

The map shows the content of our own public events, the follow list (kind 3) and the announced
routes (kind 10033). It adds only the followed agent through which each route leads.
"""

from itertools import islice
from typing import Any, Final

from farthing.agent.announce import open_routes, our_fee
from farthing.context import Agent
from farthing.ilp.fees import TYPICAL_AMOUNT
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.store.ledger import Peer

SECONDS: Final = 60  # after which a map is made again
_MOST_READ: Final = 2000
_MOST_SHOWN: Final = 200


class RouteMap:
    """The map, made again only when it is old, so that many readers cost as much as one."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._made_at = 0
        self._map: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        now = self._agent.now
        if self._map is None or not 0 <= now - self._made_at < SECONDS:
            self._map, self._made_at = _made(self._agent), now
        return self._map


def _made(agent: Agent) -> dict[str, Any]:
    settings, live = agent.settings, agent.routes.live()
    found = [] if live is None else list(islice(open_routes(agent, live.name), _MOST_READ))
    fee = our_fee(settings)
    found.sort(key=lambda route: (route.hops, route.fee, route.prefix))
    followed = {peer.pubkey: peer for peer in _followed(agent)}
    # A route through an agent that we no longer follow disappears with the next table.
    shown = [route for route in found if route.next_hop in followed][:_MOST_SHOWN]
    return {
        "pubkey": settings.pubkey,
        "ilp_address": settings.own_ilp_address,
        "asset_code": settings.asset_code,
        "asset_scale": settings.asset_scale,
        "typical_amount": str(TYPICAL_AMOUNT),
        "built": None if live is None else live.built,
        "count": 0 if live is None else live.count,
        "peers": [
            {"pubkey": peer.pubkey, "address": peer.ilp_address} for peer in followed.values()
        ],
        "routes": [
            {
                "prefix": route.prefix,
                "fee": str(route.fee + fee),
                "hops": route.hops,
                "next_hop": route.next_hop,
            }
            for route in shown
        ],
    }


def _followed(agent: Agent) -> list[Peer]:
    """The peers that are in our public follow list. Other peers stay private."""
    own = Filter(
        authors=frozenset({agent.settings.pubkey}), kinds=frozenset({Kind.FOLLOWS.value}), limit=1
    )
    keys = [
        tag[1]
        for record in agent.reader.find(own)
        for tag in record.event.tags
        if len(tag) > 1 and tag[0] == "p"
    ]
    peers = (agent.ledger.peer_by_pubkey(key) for key in keys[:_MOST_SHOWN])
    return [peer for peer in peers if peer is not None and peer.takes_packets]
