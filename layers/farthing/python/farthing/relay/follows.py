"""Follow = peer: whom the owner follows, what those agents say of themselves, and the peers that
this makes."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from farthing.agent import Agent
from farthing.ilp import address
from farthing.ilp.client import NotPayable, RelayTerms, terms_from_peer_info
from farthing.ilp.outbound import origin_of
from farthing.ilp.peering import incoming_token
from farthing.nostr.events import Event, is_hex64
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.store.ledger import Peer, PeerExists, hash_token

log = logging.getLogger("farthing")

_MOST_FOLLOWS = 5000


def newest(agent: Agent, pubkey: str, kind: Kind) -> Event | None:
    """An author's current event of a replaceable kind."""
    mine = Filter(authors=frozenset({pubkey}), kinds=frozenset({kind.value}), limit=1)
    return next((stored.event for stored in agent.reader.find(mine)), None)


def followed(agent: Agent) -> list[str]:
    """Whom the owner follows (NIP-02)."""
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
    """A peer for each followed agent that says where it takes packets. What it may owe us is left
    to trust (`KnownPeers`), and the operator's setting says whether it counts at once."""
    for pubkey in followed(agent):
        info = newest(agent, pubkey, Kind.ILP_PEER_INFO)
        terms = None if info is None else _terms(info)
        if terms is None or not _is_acceptable(agent, terms):
            continue
        known = agent.ledger.peer_by_pubkey(pubkey)
        try:
            peer = _propose(agent, pubkey, terms, known)
        except PeerExists:
            log.warning("%s claims an address that another peer has", pubkey[:16])
            continue
        yield ProposedPeer(peer, known is None)


def _propose(agent: Agent, pubkey: str, terms: RelayTerms, known: Peer | None) -> Peer:
    if known is None:
        peer = _peer(agent, pubkey, terms)
        agent.ledger.add_peer(peer)
        return peer
    # The operator's own record stands, unless it says nothing of where the peer is: whoever was let
    # in to pay us, and is followed later, can be paid as well.
    if not known.from_follows and (known.endpoint or known.ilp_address):
        return known
    moved = replace(known, endpoint=terms.endpoint, ilp_address=terms.destination)
    if moved != known:
        agent.ledger.replace_peer(moved)
    return moved


def drop_unfollowed(agent: Agent) -> int:
    """Peers that came from the follow list go when they leave it; their accounts stay. How many."""
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
    """Whether packets could go there: to an address that is theirs alone, in money that is ours."""
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


def _peer(agent: Agent, pubkey: str, terms: RelayTerms) -> Peer:
    settings = agent.settings
    token = incoming_token(bytes.fromhex(settings.secret_key), pubkey)
    return Peer(
        id=pubkey[:16],
        token_hash=hash_token(token),
        ilp_address=address.parse(terms.destination),
        endpoint=terms.endpoint,
        asset_code=terms.tariff.asset_code,
        asset_scale=terms.tariff.asset_scale,
        pubkey=pubkey,
        active=settings.peer_with_follows,
        from_follows=True,
    )
