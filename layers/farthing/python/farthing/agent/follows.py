"""Follow = peer: the owner's follow list, the announcements of followed agents, and the peers made
from them."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from farthing.connector.client import NotPayable, RelayTerms, terms_from_peer_info
from farthing.connector.peering import incoming_token
from farthing.context import Agent
from farthing.ilp import address
from farthing.nostr.events import Event, is_hex64
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.ports.outbound import origin_of
from farthing.store.ledger import Peer, PeerExists, hash_token
from farthing.store.routes import prefixes_of

log = logging.getLogger("farthing")

_MOST_FOLLOWS = 5000


def newest(agent: Agent, pubkey: str, kind: Kind) -> Event | None:
    """An author's current event of a replaceable kind."""
    mine = Filter(authors=frozenset({pubkey}), kinds=frozenset({kind.value}), limit=1)
    return next((stored.event for stored in agent.reader.find(mine)), None)


def followed(agent: Agent) -> list[str]:
    """The keys that the owner follows (NIP-02)."""
    follows = newest(agent, agent.settings.pubkey, Kind.FOLLOWS)
    if follows is None:
        return []
    keys = dict.fromkeys(key for key in follows.values("p") if is_hex64(key))
    keys.pop(agent.settings.pubkey, None)
    return list(keys)[:_MOST_FOLLOWS]


@dataclass(frozen=True, slots=True)
class ProposedPeer:
    peer: Peer
    is_new: bool


def propose_peers(agent: Agent) -> Iterator[ProposedPeer]:
    """Propose a peer for each followed agent that announces an address for packets. Trust decides
    the peer's balance limit (`KnownPeers`). A setting decides whether the peer is active at
    once."""
    taken = _TakenAddresses(peer.ilp_address for peer in agent.ledger.peers())
    for pubkey in followed(agent):
        info = newest(agent, pubkey, Kind.ILP_PEER_INFO)
        terms = None if info is None else _terms(info)
        if terms is None or not _is_acceptable(agent, terms):
            continue
        known = agent.ledger.peer_by_pubkey(pubkey)
        try:
            peer = _propose(agent, pubkey, terms, known, taken)
        except PeerExists as error:
            log.warning("a key cannot become a peer", extra={"key": pubkey, "reason": str(error)})
            continue
        yield ProposedPeer(peer, known is None)


def _propose(
    agent: Agent, pubkey: str, terms: RelayTerms, known: Peer | None, taken: "_TakenAddresses"
) -> Peer:
    if known is None:
        peer = _peer(agent, pubkey, terms, taken.claim(terms.destination))
        agent.ledger.add_peer(peer)
        return peer
    # The operator's own record stays, unless it has no address of the peer. So a peer that was only
    # allowed to pay us can also be paid once it is followed.
    if not known.from_follows and (known.endpoint or known.ilp_address):
        return known
    claimed = taken.claim(terms.destination, known.ilp_address)
    moved = replace(known, endpoint=terms.endpoint, ilp_address=claimed)
    if moved != known:
        agent.ledger.replace_peer(moved)
    return moved


class _TakenAddresses:
    """The addresses that lead to peers without a routing table. If two agents claim the same
    address, or one a prefix of the other's, the first gets the address. The other becomes a peer
    without an address: only the routing table, which knows which agent is nearer, leads to it."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._taken: set[str] = set()
        self._above: Counter[str] = Counter()  # prefixes of the taken addresses
        for each in addresses:
            self._count(each, 1)

    def claim(self, wanted: str, standing: str = "") -> str:
        """The address if it is free, else an empty string. `standing` is the peer's address until
        now."""
        self._count(standing, -1)
        if self._above[wanted] or any(each in self._taken for each in prefixes_of(wanted)):
            return ""
        self._count(wanted, 1)
        return wanted

    def _count(self, each: str, by: int) -> None:
        if each:
            (self._taken.add if by > 0 else self._taken.discard)(each)
            self._above.update(dict.fromkeys(prefixes_of(each.rpartition(".")[0]), by))


def drop_unfollowed(agent: Agent) -> int:
    """Remove peers that came from the follow list and have left it. Their accounts stay. Returns
    their number."""
    follows = set(followed(agent))
    gone = [
        peer for peer in agent.ledger.peers() if peer.from_follows and peer.pubkey not in follows
    ]
    return sum(agent.ledger.remove_peer(peer.id) for peer in gone)


def _terms(info: Event) -> RelayTerms | None:
    try:
        return terms_from_peer_info(info)
    except NotPayable:
        return None


def _is_acceptable(agent: Agent, terms: RelayTerms) -> bool:
    """Whether packets could go there: the address is the agent's alone, and the asset is our
    own."""
    settings, theirs = agent.settings, terms.destination
    overlap = address.is_prefix(theirs, settings.own_ilp_address) or address.is_prefix(
        settings.own_ilp_address, theirs
    )
    asset = (terms.tariff.asset_code, terms.tariff.asset_scale)
    return (
        address.is_specific(theirs)
        and not address.is_peer(theirs)
        and not overlap
        and asset == (settings.asset_code, settings.asset_scale)
        and origin_of(terms.endpoint) is not None
    )


def _peer(agent: Agent, pubkey: str, terms: RelayTerms, ilp_address: str) -> Peer:
    settings = agent.settings
    token = incoming_token(settings.secret, pubkey)
    return Peer(
        id=pubkey[:16],
        token_hash=hash_token(token),
        ilp_address=ilp_address,
        endpoint=terms.endpoint,
        asset_code=terms.tariff.asset_code,
        asset_scale=terms.tariff.asset_scale,
        pubkey=pubkey,
        active=settings.peer_with_follows,
        from_follows=True,
    )
