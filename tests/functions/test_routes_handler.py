"""GET /v1/routes: what everybody may see of the routing table."""

import json
from dataclasses import replace
from typing import Any

import pytest

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.nostr.events import public_key_of
from farthing.store.ledger import Peer, hash_token
from farthing.store.payment import OWNER as PAID_BY_OWNER
from farthing.store.routes import Route
from tests.functions.conftest import Invoke
from tests.relay.world import ALICE, BOB, OWNER, Clock, signed

BOB_KEY, ALICE_KEY = public_key_of(BOB), public_key_of(ALICE)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(agent: Agent, clock: Clock) -> Agent:
    """We follow Bob, who is a peer, and Alice is a peer whom we do not follow."""
    settings = replace(agent.settings, forward_fee=7, forward_fee_ppm=0)
    site = replace(agent, settings=settings, clock=clock)
    runtime.install(site)
    site.events.save(signed(OWNER, kind=3, tags=[["p", BOB_KEY]]), payment=PAID_BY_OWNER)
    for name, key in (("bob", BOB_KEY), ("alice", ALICE_KEY)):
        site.ledger.add_peer(
            Peer(name, hash_token(name), pubkey=key, ilp_address=f"g.{name}",
                 endpoint=f"https://{name}.example/ilp")
        )  # fmt: skip
    return site


def put_in_force(site: Agent, name: str, *routes: Route) -> None:
    site.routes.replace(name, routes, site.now, shrink_percent=100, force=True)


def shown(invoke: Invoke) -> dict[str, Any]:
    response = invoke("routes")
    assert response["statusCode"] == 200
    assert response["headers"]["Cache-Control"] == "public, max-age=60"
    body: dict[str, Any] = json.loads(response["body"])
    return body


def test_it_tells_routes_through_those_whom_we_follow_with_our_fee(
    site: Agent, invoke: Invoke
) -> None:
    put_in_force(
        site, "one", Route("g.eve", "e" * 64, BOB_KEY, 30, 2),
        Route("g.bob", BOB_KEY, BOB_KEY, 0, 1), Route("g.frank", "f" * 64, ALICE_KEY, 1, 2),
    )  # fmt: skip

    table = shown(invoke)

    assert table["routes"] == [
        {"prefix": "g.bob", "fee": "7", "hops": 1, "next_hop": BOB_KEY},
        {"prefix": "g.eve", "fee": "37", "hops": 2, "next_hop": BOB_KEY},
    ]
    assert table["peers"] == [{"pubkey": BOB_KEY, "address": "g.bob"}]


def test_without_a_table_there_are_peers_still(site: Agent, invoke: Invoke) -> None:
    table = shown(invoke)
    assert (table["built"], table["routes"]) == (None, [])
    assert [peer["pubkey"] for peer in table["peers"]] == [BOB_KEY]


def test_a_peer_that_takes_no_packets_is_not_shown(site: Agent, invoke: Invoke) -> None:
    peer = site.ledger.peer("bob")
    assert peer is not None
    site.ledger.replace_peer(replace(peer, active=False))
    put_in_force(site, "one", Route("g.eve", "e" * 64, BOB_KEY, 30, 2))

    table = shown(invoke)

    assert (table["peers"], table["routes"]) == ([], [])


def test_many_who_look_cost_as_much_as_one(site: Agent, invoke: Invoke, clock: Clock) -> None:
    put_in_force(site, "one", Route("g.eve", "e" * 64, BOB_KEY, 30, 2))
    first = shown(invoke)
    put_in_force(site, "two", Route("g.far", "e" * 64, BOB_KEY, 30, 3))

    assert shown(invoke) == first
    clock.now += 60
    assert [route["prefix"] for route in shown(invoke)["routes"]] == ["g.far"]
