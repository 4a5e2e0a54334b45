"""Peers by token, id, key or address, cached for a few seconds. A peer that sends a thousand
packets is looked up once. A peer that the operator removes is refused when the cache forgets it."""

from collections.abc import Callable
from dataclasses import replace

from farthing.context import Agent
from farthing.settings import Settings
from farthing.store.credits import CreditLimits
from farthing.store.ledger import Ledger, Peer, hash_token
from farthing.store.routes import prefixes_of

# When so many are cached, all are forgotten: strangers can ask for any number of addresses.
_MOST = 4096


class KnownPeers:
    """Peers with the limit that holds for them (see `with_limit`)."""

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
        """Found by the token's hash. The token itself is compared with nothing, so the time of the
        look-up tells nothing about it."""
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
        # A new peer must be found at once. That an address belongs to nobody may be cached.
        if peer is not None or by == "address":
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[by, key] = peer, now + self._settings.peer_cache_seconds
        return peer

    def with_limit(self, peer: Peer) -> Peer:
        """The peer with its own limit, or the credit that trust gives its key, or the default."""
        if peer.max_balance is not None:
            return peer
        limit = self._trust.of(peer.pubkey) if peer.pubkey else None
        if limit is None:
            follows = peer.from_follows
            limit = self._settings.follow_max_balance if follows else self._settings.max_balance
        return replace(peer, max_balance=limit)


def known_peers(agent: Agent) -> KnownPeers:
    """The agent's own."""
    return agent.part(_known_peers)


def _known_peers(agent: Agent) -> KnownPeers:
    return KnownPeers(agent.ledger, agent.trust, agent.settings, agent.clock)
