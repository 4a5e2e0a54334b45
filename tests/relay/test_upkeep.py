"""Our own routes offered in kind 10033, and the round of duties."""

from dataclasses import replace

import pytest

from farthing.agent import upkeep
from farthing.agent.announce import RENEW_SECONDS, announce_routes
from farthing.agent.follows import newest
from farthing.agent.upkeep import DUTIES, run_duties
from farthing.context import Agent
from farthing.ilp.fees import TYPICAL_AMOUNT
from farthing.nostr.kinds import Kind
from farthing.ports.meter import Metric
from farthing.store.ledger import Peer, hash_token
from farthing.store.routes import Route
from farthing.store.sqlite import SqliteEngine
from glue_jobs.rules import Options
from tests.relay.world import Clock, counts_of, make_agent

ROUTES = [
    Route("g.agent.far", "f" * 64, "b" * 64, 300, 3),
    Route("g.agent.bob", "b" * 64, "b" * 64, 0, 1),
    Route("g.agent.eve", "e" * 64, "b" * 64, 100, 2),
]
BOB = Peer("bob", hash_token("bob"), endpoint="http://bob.example/ilp", pubkey="b" * 64)


def with_routes(agent: Agent, *routes: Route, name: str = "one") -> None:
    agent.routes.replace(name, routes, agent.now, shrink_percent=100, force=True)


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock) -> Agent:
    made = make_agent(
        sqlite, clock, forward_fee=5, forward_fee_ppm=200, max_announced_routes=2,
        route_cache_seconds=0,
    )  # fmt: skip
    made.ledger.add_peer(BOB)
    return made


def test_without_a_table_nothing_is_announced(agent: Agent) -> None:
    assert announce_routes(agent) is None
    assert newest(agent, agent.settings.pubkey, Kind.ROUTE_ANNOUNCEMENT) is None


def test_the_nearest_routes_are_offered_at_what_they_cost_through_us(agent: Agent) -> None:
    with_routes(agent, *ROUTES)
    event = announce_routes(agent)
    assert event is not None
    assert event.tags == (
        ("route", "g.agent.bob", "7", "direct"),
        ("route", "g.agent.eve", "107", "2-hop"),
    )
    assert newest(agent, agent.settings.pubkey, Kind.ROUTE_ANNOUNCEMENT) == event


def test_the_same_table_is_announced_once_and_a_new_one_again(agent: Agent) -> None:
    with_routes(agent, *ROUTES)
    first = announce_routes(agent)
    assert announce_routes(agent) is None
    with_routes(agent, ROUTES[1], name="two")
    second = announce_routes(agent)
    assert first is not None
    assert second is not None
    assert second.created_at > first.created_at
    assert len(second.tags) == 1


def test_a_share_of_the_amount_counts_as_what_it_takes_of_a_typical_packet(agent: Agent) -> None:
    settings = agent.settings
    assert settings.forward_fee + settings.forward_fee_ppm * TYPICAL_AMOUNT // 10**6 == 7


def test_valid_routes_are_announced_again_before_others_drop_them(
    agent: Agent, clock: Clock
) -> None:
    with_routes(agent, *ROUTES)
    first = announce_routes(agent)
    clock.now += RENEW_SECONDS - 1
    assert announce_routes(agent) is None
    clock.now += 1
    renewed = announce_routes(agent)
    assert first is not None
    assert renewed is not None
    assert (renewed.tags, renewed.created_at) == (first.tags, first.created_at + RENEW_SECONDS)
    assert Options(now=agent.now).max_announcement_age > 2 * RENEW_SECONDS


@pytest.mark.parametrize("change", [{"active": False}, {"endpoint": ""}, {"pubkey": ""}], ids=str)
def test_a_route_that_no_packet_could_take_is_not_offered(agent: Agent, change: dict) -> None:
    carol = Peer("carol", hash_token("carol"), endpoint="http://c.example/ilp", pubkey="c" * 64)
    agent.ledger.add_peer(carol)
    agent.ledger.replace_peer(replace(BOB, **change))
    with_routes(agent, *ROUTES, Route("g.agent.carol", "c" * 64, "c" * 64, 0, 1))
    event = announce_routes(agent)
    assert event is not None
    assert event.tags == (("route", "g.agent.carol", "7", "direct"),)


def test_a_round_does_every_duty(agent: Agent) -> None:
    with_routes(agent, *ROUTES)
    done = run_duties(agent)
    assert list(done) == [duty.__name__ for duty in DUTIES]
    assert done["publish_announcements"] == "published 1 events of our own"
    assert done["offer_routes"] == "announced our routes"
    assert run_duties(agent)["publish_announcements"] == "published 0 events of our own"


def test_a_duty_that_fails_keeps_no_other_from_being_done(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Agent) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(upkeep, "gather", broken)
    with_routes(agent, *ROUTES)
    done = run_duties(agent)
    assert done["gather_announcements"] == "failed"
    assert done["offer_routes"] == "announced our routes"
    assert counts_of(agent)[Metric.INTERNAL_ERRORS] == 1
