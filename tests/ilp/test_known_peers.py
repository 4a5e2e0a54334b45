"""Peers that are remembered by their tokens, and forgotten in time."""

import pytest

from farthing.ilp.known_peers import KnownPeers
from farthing.store.counting import CountingEngine
from farthing.store.ledger import Ledger, Peer, hash_token
from farthing.store.sqlite import SqliteEngine
from tests.relay.world import Clock

ANN = Peer("ann", hash_token("token of ann"))


@pytest.fixture
def counting(sqlite: SqliteEngine) -> CountingEngine:
    Ledger(sqlite).add_peer(ANN)
    return CountingEngine(sqlite)


def test_a_peer_is_looked_up_once_in_a_while(counting: CountingEngine, clock: Clock) -> None:
    peers = KnownPeers(Ledger(counting), 5, clock)
    assert [peers.by_token("token of ann") for _ in range(10)] == [ANN] * 10
    assert counting.reset().requests == 1
    clock.now += 5
    assert peers.by_token("token of ann") == ANN
    assert counting.reset().requests == 1


def test_a_removed_peer_is_refused_when_its_time_is_up(
    counting: CountingEngine, clock: Clock
) -> None:
    ledger = Ledger(counting)
    peers = KnownPeers(ledger, 5, clock)
    peers.by_token("token of ann")
    ledger.remove_peer("ann")
    clock.now += 4
    assert peers.by_token("token of ann") == ANN
    clock.now += 1
    assert peers.by_token("token of ann") is None


def test_a_wrong_token_is_never_remembered(counting: CountingEngine, clock: Clock) -> None:
    ledger = Ledger(counting)
    peers = KnownPeers(ledger, 5, clock)
    assert peers.by_token("token of bob") is None
    ledger.add_peer(bob := Peer("bob", hash_token("token of bob")))
    assert peers.by_token("token of bob") == bob


def test_without_seconds_nothing_is_remembered(counting: CountingEngine, clock: Clock) -> None:
    peers = KnownPeers(Ledger(counting), 0, clock)
    peers.by_token("token of ann")
    peers.by_token("token of ann")
    assert counting.reset().requests == 2
