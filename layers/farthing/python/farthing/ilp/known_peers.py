"""Peers by their tokens, remembered for a few seconds: a peer that sends a thousand packets is
looked up once, and one that the operator removes is gone when its record is forgotten."""

from collections.abc import Callable

from farthing.store.ledger import Ledger, Peer, hash_token

# Only tokens that lead to a peer are kept, so there are no more than peers; still, none for ever.
_MOST = 1024


class KnownPeers:
    def __init__(self, ledger: Ledger, seconds: int, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._seconds = seconds
        self._clock = clock
        self._known: dict[str, tuple[Peer, float]] = {}

    def by_token(self, token: str) -> Peer | None:
        """One look-up under the token's hash: nothing compares the token itself, so the time that
        it takes tells nothing about it."""
        hashed, now = hash_token(token), self._clock()
        peer, until = self._known.get(hashed, (None, 0.0))
        if now < until:
            return peer
        peer = self._ledger.peer_by_token_hash(hashed)
        if len(self._known) >= _MOST:
            self._known.clear()
        if peer is None:
            self._known.pop(hashed, None)
        else:
            self._known[hashed] = peer, now + self._seconds
        return peer
