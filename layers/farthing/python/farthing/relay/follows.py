"""Follow = peer: whom the owner follows, what those agents say of themselves, and the peers that
this makes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from farthing.agent import Agent
from farthing.ilp import address
from farthing.ilp.client import NotPayable, RelayTerms, terms_from_peer_info
from farthing.ilp.peering import incoming_token
from farthing.nostr.events import Event, is_hex64
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.store.ledger import Peer, PeerExists, hash_token

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


def propose_peers(agent: Agent, credit: Mapping[str, int]) -> Iterator[ProposedPeer]:
    """A peer for each followed agent that says where it takes packets. `credit` has what trust
    allows each to owe us; those it does not know get the default of the settings."""
    for pubkey in followed(agent):
        info = newest(agent, pubkey, Kind.ILP_PEER_INFO)
        terms = None if info is None else _terms(info)
        if terms is None:
            continue
        known = agent.ledger.peer_by_pubkey(pubkey)
        if known is not None:
            yield ProposedPeer(known, False)
            continue
        peer = _peer(agent, pubkey, terms, credit.get(pubkey, 0))
        try:
            agent.ledger.add_peer(peer)
        except PeerExists:
            continue
        yield ProposedPeer(peer, True)


def _terms(info: Event) -> RelayTerms | None:
    try:
        return terms_from_peer_info(info)
    except NotPayable:
        return None


def _peer(agent: Agent, pubkey: str, terms: RelayTerms, max_balance: int) -> Peer:
    settings = agent.settings
    token = incoming_token(bytes.fromhex(settings.secret_key), pubkey)
    return Peer(
        id=pubkey[:16],
        token_hash=hash_token(token),
        ilp_address=address.parse(terms.destination),
        endpoint=terms.endpoint,
        max_balance=max_balance,
        asset_code=terms.tariff.asset_code,
        asset_scale=terms.tariff.asset_scale,
        pubkey=pubkey,
        active=settings.peer_with_follows,
    )
