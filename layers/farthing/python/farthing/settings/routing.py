"""Settings of routing."""

from dataclasses import dataclass

from farthing.settings.declaring import setting
from farthing.settings.values import at_most


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Routing:
    """Peers and routes from the follow graph: what upkeep reads, keeps and announces."""

    peer_with_follows: bool = setting(
        False, "Whether a followed agent becomes an active peer at once (`1`) or a proposal (`0`)"
    )
    follow_max_balance: int = setting(
        10**9, "Amount that a peer from the follow list may owe us until trust has been computed"
    )
    upkeep_seconds: int = setting(
        600,
        "Seconds between two rounds of upkeep on one machine: reading the relays of followed"
        " agents, announcing routes, settling; 0 is never",
    )
    max_gathered_relays: int = setting(
        200, "Number of followed agents whose relays one round of upkeep reads"
    )
    max_gathered_events: int = setting(
        5000, "Number of events that upkeep reads from the relay of one followed agent in a round"
    )
    max_gathered_bytes: int = setting(
        8 * 1024 * 1024, "Bytes that upkeep reads from the relay of one followed agent in a round"
    )
    max_gathered_event_bytes: int = setting(
        65536, "Bytes of an event that upkeep keeps of somebody whom the owner does not follow"
    )
    gather_seconds: int = setting(
        10, "Seconds that upkeep waits for the relay of one followed agent in a round"
    )
    allow_private_hosts: bool = setting(
        False,
        "Whether peers, callbacks, settlement engines and relays may be at private, loopback or"
        " link-local addresses; `1` on a test network",
    )
    route_cache_seconds: int = setting(
        10, "Seconds for which routes are cached; then a new routing table is used"
    )
    max_announced_routes: int = setting(
        1000, "Number of routes that our own announcement (kind 10033) holds at most"
    )
    max_shrink_percent: int = setting(
        50,
        "Percentage by which a new routing table may be smaller than the present one; a smaller"
        " table is refused",
        at_most(100),
    )
