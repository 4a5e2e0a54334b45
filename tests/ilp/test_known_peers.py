"""Peers that are remembered by their tokens, and forgotten in time."""

import pytest

from farthing.connector.known_peers import KnownPeers
from farthing.settings import Settings
from farthing.store.credits import CreditLimits
from farthing.store.ledger import Ledger, Peer, hash_token
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine
from infra.costs.counting import CountingEngine
from tests.relay.world import Clock

DEFAULT, FOLLOWED = 10_000, 500
ANN = Peer("ann", hash_token("token of ann"), max_balance=1, ilp_address="g.agent.ann")
EVE_KEY = "e" * 64


def known(engine: Engine, clock: Clock, seconds: int = 5) -> KnownPeers:
    settings = Settings(
        peer_cache_seconds=seconds, max_balance=DEFAULT, follow_max_balance=FOLLOWED
    )
    return KnownPeers(Ledger(engine), CreditLimits(engine), settings, clock)


@pytest.fixture
def counting(sqlite: SqliteEngine) -> CountingEngine:
    Ledger(sqlite).add_peer(ANN)
    return CountingEngine(sqlite)


def test_a_peer_is_looked_up_once_in_a_while(counting: CountingEngine, clock: Clock) -> None:
    peers = known(counting, clock)
    assert [peers.by_token("token of ann") for _ in range(10)] == [ANN] * 10
    assert counting.reset().requests == 1
    clock.now += 5
    assert peers.by_token("token of ann") == ANN
    assert counting.reset().requests == 1


def test_a_removed_peer_is_refused_when_its_time_is_up(
    counting: CountingEngine, clock: Clock
) -> None:
    ledger = Ledger(counting)
    peers = known(counting, clock)
    peers.by_token("token of ann")
    ledger.remove_peer("ann")
    clock.now += 4
    assert peers.by_token("token of ann") == ANN
    clock.now += 1
    assert peers.by_token("token of ann") is None


def test_a_wrong_token_is_never_remembered(counting: CountingEngine, clock: Clock) -> None:
    ledger = Ledger(counting)
    peers = known(counting, clock)
    assert peers.by_token("token of bob") is None
    ledger.add_peer(bob := Peer("bob", hash_token("token of bob"), max_balance=2))
    assert peers.by_token("token of bob") == bob


def test_without_seconds_nothing_is_remembered(counting: CountingEngine, clock: Clock) -> None:
    peers = known(counting, clock, 0)
    peers.by_token("token of ann")
    peers.by_token("token of ann")
    assert counting.reset().requests == 2


@pytest.mark.parametrize(
    ("peer", "limit"),
    [
        (Peer("x", "1" * 64), DEFAULT),
        (Peer("x", "1" * 64, max_balance=7, pubkey=EVE_KEY, from_follows=True), 7),
        (Peer("x", "1" * 64, max_balance=0, pubkey=EVE_KEY, from_follows=True), 0),
        (Peer("x", "1" * 64, pubkey=EVE_KEY), 42),
        (Peer("x", "1" * 64, pubkey=EVE_KEY, from_follows=True), 42),
        (Peer("x", "1" * 64, pubkey="f" * 64, from_follows=True), FOLLOWED),
        (Peer("x", "1" * 64, pubkey="f" * 64), DEFAULT),
    ],
)
def test_trust_gives_a_limit_to_peers_without_their_own(
    counting: CountingEngine, clock: Clock, peer: Peer, limit: int
) -> None:
    CreditLimits(counting).replace({EVE_KEY: 42})
    Ledger(counting).add_peer(peer)
    found = known(counting, clock).by_id("x")
    assert found is not None
    assert found.max_balance == limit


@pytest.mark.parametrize(
    ("address", "is_anns"),
    [
        ("g.agent.ann", True),
        ("g.agent.ann.relay.1", True),
        ("g.agent.anna", False),
        ("g.agent", False),
    ],
)
def test_an_address_leads_to_the_peer_that_covers_it(
    counting: CountingEngine, clock: Clock, address: str, is_anns: bool
) -> None:
    peers = known(counting, clock)
    assert (peers.by_address(address) == ANN) is is_anns
    counting.reset()
    peers.by_address(address)
    assert counting.reset().requests == 0
