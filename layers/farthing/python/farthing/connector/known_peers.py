"""Peers by token, id, key or address, cached for a few seconds, and their limits. A peer that sends
a thousand packets is looked up once. A peer that the operator removes is refused as soon as its
cache entry expires."""

from collections.abc import Callable
from dataclasses import replace

from farthing.context import Agent
from farthing.settings import Settings
from farthing.store.credits import CreditLimits
from farthing.store.ledger import Ledger, Peer, hash_token
from farthing.store.routes import prefixes_of

# At this size the cache is emptied: strangers can ask for any number of addresses.
_MOST = 4096


class KnownPeers:
    """Peers with their effective balance limit (see `with_limit`)."""

    def __init__(
        self,
        ledger: Ledger,
        trust: CreditLimits,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._trust = trust
        self._settings = settings
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[Peer | None, float]] = {}

    def by_token(self, token: str) -> Peer | None:
        """Find the peer by the hash of its token. The token itself is never compared, so the
        duration of the look-up reveals nothing about the token."""
        return self._find("token", hash_token(token), self._ledger.peer_by_token_hash)

    def by_id(self, peer_id: str) -> Peer | None:
        return self._find("id", peer_id, self._ledger.peer)

    def by_pubkey(self, pubkey: str) -> Peer | None:
        return self._find("pubkey", pubkey, self._ledger.peer_by_pubkey)

    def by_address(self, address: str) -> Peer | None:
        """The peer whose own address covers this one most closely, on segment boundaries."""
        return self._find(
            "address", address, lambda each: self._ledger.peer_by_address(prefixes_of(each))
        )

    def _find(self, by: str, key: str, load: Callable[[str], Peer | None]) -> Peer | None:
        now = self._clock()
        peer, until = self._known.get((by, key), (None, 0.0))
        if now < until:
            return peer
        peer = load(key)
        if peer is not None:
            peer = self.with_limit(peer)
        # Only for addresses is a miss cached: a new peer must be found at once by token, id or key.
        if peer is not None or by == "address":
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[by, key] = peer, now + self._settings.peer_cache_seconds
        return peer

    def with_limit(self, peer: Peer) -> Peer:
        """The peer with its own limit, or the credit that its key gets by trust, or the default
        limit."""
        if peer.max_balance is not None:
            return peer
        limit = self._trust.of(peer.pubkey) if peer.pubkey else None
        if limit is None:
            follows = peer.from_follows
            limit = self._settings.follow_max_balance if follows else self._settings.max_balance
        return replace(peer, max_balance=limit)


def known_peers(agent: Agent) -> KnownPeers:
    """The agent's cache of peers."""
    return agent.part(_known_peers)


def max_balance(agent: Agent, peer: Peer) -> int:
    """What the peer may owe us. 0 is a limit: such a peer pays in advance."""
    return agent.settings.max_balance if peer.max_balance is None else peer.max_balance


def max_packet(agent: Agent, peer: Peer) -> int:
    return agent.settings.max_packet if peer.max_packet is None else peer.max_packet


def _known_peers(agent: Agent) -> KnownPeers:
    return KnownPeers(agent.ledger, agent.trust, agent.settings, agent.clock)
