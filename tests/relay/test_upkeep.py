"""Our own routes offered in kind 10033, and the round of duties."""

import pytest

from farthing.agent import Agent
from farthing.nostr.kinds import Kind
from farthing.relay import upkeep
from farthing.relay.announce import announce_routes
from farthing.relay.follows import newest
from farthing.relay.meter import Metric
from farthing.relay.upkeep import DUTIES, keep_up
from farthing.store.routes import Route
from farthing.store.sqlite import SqliteEngine
from tests.relay.world import Clock, counts_of, make_agent

ROUTES = [
    Route("g.agent.far", "f" * 64, "b" * 64, 300, 3),
    Route("g.agent.bob", "b" * 64, "b" * 64, 0, 1),
    Route("g.agent.eve", "e" * 64, "b" * 64, 100, 2),
]


def with_routes(agent: Agent, *routes: Route, name: str = "one") -> None:
    agent.routes.replace(name, routes, agent.now, shrink_percent=100, force=True)


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock) -> Agent:
    return make_agent(sqlite, clock, forward_fee=7, max_announced_routes=2, route_cache_seconds=0)


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


def test_a_round_does_every_duty(agent: Agent) -> None:
    with_routes(agent, *ROUTES)
    done = keep_up(agent)
    assert list(done) == [duty.__name__ for duty in DUTIES]
    assert done["say_who_we_are"] == "published 1 events of our own"
    assert done["offer_routes"] == "announced our routes"
    assert keep_up(agent)["say_who_we_are"] == "published 0 events of our own"


def test_a_duty_that_fails_keeps_no_other_from_being_done(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Agent) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(upkeep, "gather", broken)
    with_routes(agent, *ROUTES)
    done = keep_up(agent)
    assert done["see_what_followed_agents_say"] == "failed"
    assert done["offer_routes"] == "announced our routes"
    assert counts_of(agent)[Metric.INTERNAL_ERRORS] == 1
