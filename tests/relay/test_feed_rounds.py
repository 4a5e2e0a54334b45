"""Rounds of reading followed keys, as the cloud makes them: bounded in time, and nobody is left out
for the sake of slow relays."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from farthing.agent import feeds
from farthing.agent.feeds import caching, catch_up_all
from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.ports.relays import Allowance, RelayFailed
from farthing.store.sqlite import SqliteEngine
from tests.relay.test_catching_up import Session, note, stored
from tests.relay.world import ALICE, BOB, OWNER, Clock, make_agent, signed

SLOW, HONEST = "ws://slow.example", "ws://honest.example"


class SlowSession(Session):
    """Sends events without end, one in 50 seconds."""

    def __init__(self, clock: Clock, allowance: Allowance) -> None:
        super().__init__([])
        self.clock, self.allowance = clock, allowance

    def read(self, filters: Any) -> Iterator[Any]:
        while True:
            self.clock.now += 50
            self.allowance.spend(1, 100)
            yield {}


class TwoRelays:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[str] = []
        self.honest = Session([note(1, BOB)])

    def information(self, url: str, _seconds: float) -> Mapping[str, Any]:
        raise RelayFailed("none")

    @contextmanager
    def session(self, url: str, allowance: Allowance, _seconds: float) -> Iterator[Any]:
        self.asked.append(url)
        yield SlowSession(self.clock, allowance) if url == SLOW else self.honest


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock) -> Agent:
    made = make_agent(sqlite, clock, secret_key=OWNER.hex(), follow_content="cache")
    follows = [["p", public_key_of(ALICE), SLOW], ["p", public_key_of(BOB), HONEST]]
    made.events.save(signed(kind=3, secret=OWNER, tags=follows))
    return replace(made, relays=TwoRelays(clock), _parts={})


def test_a_slow_relay_ends_with_the_round_and_comes_last_in_the_next(
    agent: Agent, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_AT_ONCE", 1)
    # as if it had been the one that was read longest ago
    agent.feeds.keep(replace(agent.feeds.state(HONEST), time=1))
    begun = clock.now

    catch_up_all(agent, caching(agent))

    assert clock.now - begun <= 300
    assert agent.relays.asked == [SLOW]  # type: ignore[attr-defined]
    assert "in the time for reading" in agent.feeds.state(SLOW).trouble

    clock.now = begun + 300
    catch_up_all(agent, caching(agent))

    assert agent.relays.asked[1:] == [HONEST, SLOW]  # type: ignore[attr-defined]
    assert note(1, BOB).id in stored(agent)
