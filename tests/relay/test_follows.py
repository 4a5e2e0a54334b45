"""Peers that come of the follow list, and go with it."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from farthing.agent.follows import drop_unfollowed, followed, propose_peers
from farthing.connector.known_peers import known_peers
from farthing.connector.peering import derived_token
from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.store.ledger import Peer, hash_token
from farthing.store.table import Engine
from tests.relay.world import ALICE, BOB, OWNER, Clock, make_agent, signed

ALICE_KEY, BOB_KEY, OWNER_KEY = map(public_key_of, (ALICE, BOB, OWNER))


@pytest.fixture
def agent(engine: Engine, clock: Clock) -> Agent:
    return make_agent(engine, clock, ilp_address="g.agent.owner", peer_with_follows=True)


def follow(agent: Agent, *pubkeys: str, at: int = 0) -> None:
    created = int(agent.now) + at
    tags = [["p", pubkey] for pubkey in pubkeys]
    agent.events.save(signed(OWNER, kind=3, tags=tags, created_at=created))


def say(agent: Agent, secret: bytes, at: int = 0, **changes: str) -> None:
    """An agent's kind 10032."""
    tags = {
        "ilp_address": "g.agent.alice",
        "ilp_endpoint": "https://alice.example/ilp",
        "asset_code": "USD",
        "asset_scale": "9",
        **changes,
    }
    given = [[name, value] for name, value in tags.items() if value]
    agent.events.save(signed(secret, kind=10032, tags=given, created_at=int(agent.now) + at))


def peers(agent: Agent) -> dict[str, Peer]:
    return {peer.pubkey: peer for peer in agent.ledger.peers()}


def test_the_owner_follows_each_key_once_and_never_itself(agent: Agent) -> None:
    follow(agent, ALICE_KEY, "no key", OWNER_KEY, ALICE_KEY, BOB_KEY)
    assert followed(agent) == [ALICE_KEY, BOB_KEY]


def test_a_followed_agent_becomes_a_peer(agent: Agent) -> None:
    follow(agent, ALICE_KEY)
    say(agent, ALICE)

    [proposed] = propose_peers(agent)

    assert proposed.is_new
    peer = peers(agent)[ALICE_KEY]
    assert (peer.ilp_address, peer.endpoint) == ("g.agent.alice", "https://alice.example/ilp")
    assert peer.active
    assert peer.from_follows
    # Alice computes the token that she shows us; nobody has to send it.
    shown = derived_token(ALICE, OWNER_KEY, ALICE_KEY)
    assert known_peers(agent).by_token(shown) is not None


@pytest.mark.parametrize("also", [{}, {"httpEndpoint": "https://alice.example/ilp"}])
def test_an_agent_that_states_its_address_in_the_content_becomes_a_peer(
    agent: Agent, also: dict[str, str]
) -> None:
    told = {
        "ilpAddress": "g.agent.alice",
        "btpEndpoint": "wss://alice.example" if also else "https://alice.example/ilp",
        "assetCode": "USD",
        "assetScale": 9,
        **also,
    }
    follow(agent, ALICE_KEY)
    agent.events.save(signed(ALICE, kind=10032, content=orjson.dumps(told).decode()))

    list(propose_peers(agent))

    peer = peers(agent)[ALICE_KEY]
    assert (peer.ilp_address, peer.endpoint) == ("g.agent.alice", "https://alice.example/ilp")


@pytest.mark.parametrize(
    "told",
    [
        {"btpEndpoint": "wss://alice.example"},  # packets go by HTTP
        {"ilpAddress": 5},
        {"ilpAddress": None},
        {"assetScale": "9.5"},
        {"assetScale": True},
        {"assetCode": ["USD"]},
    ],
    ids=str,
)
def test_content_that_cannot_be_a_peers_is_left_out(agent: Agent, told: dict[str, Any]) -> None:
    right = {
        "ilpAddress": "g.agent.alice", "btpEndpoint": "https://alice.example/ilp",
        "assetCode": "USD", "assetScale": 9,
    }  # fmt: skip
    follow(agent, ALICE_KEY)
    content = orjson.dumps({**right, **told}).decode()
    agent.events.save(signed(ALICE, kind=10032, content=content))

    assert list(propose_peers(agent)) == []


def test_the_operator_decides_whether_it_counts_at_once(engine: Engine, clock: Clock) -> None:
    agent = make_agent(engine, clock, ilp_address="g.agent.owner")
    follow(agent, ALICE_KEY)
    say(agent, ALICE)
    list(propose_peers(agent))
    assert not peers(agent)[ALICE_KEY].active


def test_only_followed_agents_become_peers(agent: Agent) -> None:
    follow(agent, ALICE_KEY)
    say(agent, BOB)
    assert list(propose_peers(agent)) == []
    assert peers(agent) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"ilp_address": ""},
        {"ilp_address": "g.agent"},  # would cover the others
        {"ilp_address": "peer.alice.x"},
        {"ilp_address": "g.agent.owner"},  # ours
        {"ilp_address": "g.agent.owner.below"},
        {"ilp_endpoint": ""},
        {"ilp_endpoint": "ftp://alice.example"},
        {"ilp_endpoint": "https://user@alice.example/ilp"},
        {"asset_code": "EUR"},  # its numbers would mean something else
        {"asset_scale": "6"},
    ],
    ids=str,
)
def test_what_cannot_be_a_peer_is_left_out(agent: Agent, changes: dict[str, str]) -> None:
    follow(agent, ALICE_KEY)
    say(agent, ALICE, **changes)
    assert list(propose_peers(agent)) == []
    assert peers(agent) == {}


@pytest.mark.parametrize(
    "claimed", ["g.agent.alice", "g.agent.alice.shop", "g.agent.alice.shop.till", "g.agent.al.x"]
)
def test_an_address_has_one_peer(agent: Agent, claimed: str) -> None:
    """The second is a peer all the same, which only the routing table leads to."""
    first = "g.agent.al.x.y" if claimed == "g.agent.al.x" else "g.agent.alice"
    follow(agent, ALICE_KEY, BOB_KEY)
    say(agent, ALICE, ilp_address=first)
    say(agent, BOB, ilp_endpoint="https://bob.example/ilp", ilp_address=claimed)
    for _ in range(2):
        list(propose_peers(agent))
        addresses = {key: peer.ilp_address for key, peer in peers(agent).items()}
        assert addresses == {ALICE_KEY: first, BOB_KEY: ""}
    say(agent, BOB, at=1, ilp_endpoint="https://bob.example/ilp", ilp_address="g.agent.alicia")
    list(propose_peers(agent))
    assert peers(agent)[BOB_KEY].ilp_address == "g.agent.alicia"


def test_an_address_that_is_left_can_be_had(agent: Agent) -> None:
    follow(agent, ALICE_KEY, BOB_KEY)
    say(agent, ALICE)
    list(propose_peers(agent))
    say(agent, ALICE, at=1, ilp_address="g.agent.anew")
    say(agent, BOB, ilp_endpoint="https://bob.example/ilp")
    list(propose_peers(agent))
    addresses = {key: peer.ilp_address for key, peer in peers(agent).items()}
    assert addresses == {ALICE_KEY: "g.agent.anew", BOB_KEY: "g.agent.alice"}


def test_a_second_round_changes_nothing(agent: Agent) -> None:
    follow(agent, ALICE_KEY)
    say(agent, ALICE)
    list(propose_peers(agent))
    before = peers(agent)
    assert [proposed.is_new for proposed in propose_peers(agent)] == [False]
    assert peers(agent) == before


def test_a_peer_that_moves_is_found_where_it_went(agent: Agent) -> None:
    follow(agent, ALICE_KEY)
    say(agent, ALICE)
    list(propose_peers(agent))
    say(agent, ALICE, at=1, ilp_endpoint="https://new.example/ilp", ilp_address="g.agent.anew")
    list(propose_peers(agent))
    assert peers(agent)[ALICE_KEY].endpoint == "https://new.example/ilp"
    assert agent.ledger.peer_by_address(["g.agent.alice"]) is None
    assert agent.ledger.peer_by_address(["g.agent.anew"]) == peers(agent)[ALICE_KEY]


def test_the_operators_own_record_stands(agent: Agent) -> None:
    given = Peer("al", hash_token("t"), endpoint="https://mine.example/ilp", pubkey=ALICE_KEY)
    agent.ledger.add_peer(given)
    follow(agent, ALICE_KEY)
    say(agent, ALICE)
    list(propose_peers(agent))
    follow(agent, at=1)
    assert drop_unfollowed(agent) == 0
    assert peers(agent)[ALICE_KEY] == given


def test_what_the_operators_record_leaves_open_is_filled(agent: Agent) -> None:
    """Alice was given an account by her key alone; now she is followed."""
    mine = Peer("alice", hash_token("t"), max_balance=7, pubkey=ALICE_KEY)
    agent.ledger.add_peer(mine)
    follow(agent, ALICE_KEY)
    say(agent, ALICE)
    [proposed] = propose_peers(agent)
    filled = replace(mine, endpoint="https://alice.example/ilp", ilp_address="g.agent.alice")
    assert proposed.peer == agent.ledger.peer("alice") == filled
    assert drop_unfollowed(agent) == 0
    say(agent, ALICE, at=1, ilp_endpoint="https://elsewhere.example/ilp")
    list(propose_peers(agent))
    assert agent.ledger.peer("alice") == filled


def test_an_unfollowed_agent_is_no_peer_any_more(agent: Agent) -> None:
    follow(agent, ALICE_KEY, BOB_KEY)
    say(agent, ALICE)
    say(agent, BOB, ilp_address="g.agent.bob")
    list(propose_peers(agent))
    follow(agent, BOB_KEY, at=1)
    assert drop_unfollowed(agent) == 1
    assert peers(agent).keys() == {BOB_KEY}
    assert agent.ledger.peer_by_pubkey(ALICE_KEY) is None


def test_a_record_is_changed_as_a_whole_or_not_at_all(agent: Agent) -> None:
    def peer(name: str, **changes: Any) -> Peer:
        fields = {"ilp_address": f"g.agent.{name}", "pubkey": name[0] * 64, **changes}
        return Peer(name, hash_token(name), **fields)

    agent.ledger.add_peer(peer("ann"))
    agent.ledger.add_peer(bob := peer("bob"))
    with pytest.raises(Exception, match="another peer"):
        agent.ledger.replace_peer(replace(bob, ilp_address="g.agent.ann"))
    assert agent.ledger.peer("bob") == bob
    with pytest.raises(Exception, match="no peer"):
        agent.ledger.replace_peer(peer("carol"))
    agent.ledger.replace_peer(changed := replace(bob, max_balance=5, active=False))
    assert agent.ledger.peer("bob") == changed
    assert agent.ledger.peer_by_pubkey("b" * 64) == changed
    assert agent.ledger.peer_by_token_hash(bob.token_hash) == changed
