"""Rounds of reading followed keys, as the cloud makes them: bounded in time, and nobody is left out
for the sake of slow relays."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from farthing.agent import feeds
from farthing.agent.feeds import FollowedRelay, caching, catch_up_all, total_allowance
from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.ports.relays import Allowance, RelayFailed
from farthing.store.sqlite import SqliteEngine
from tests.relay.test_catching_up import Session, note, plain, stored
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


class LiveSession(Session):
    """Sends a live note, and then nothing."""

    def __init__(self, clock: Clock) -> None:
        super().__init__([])
        self.clock, self.waited = clock, 0
        self.relay: FollowedRelay | None = None

    def subscribe(self, name: str, filters: Any, take: Callable[[Any], object]) -> None:
        self.take = take

    def wait(self) -> None:
        self.clock.now += 6
        self.waited += 1
        if self.waited == 1:
            self.take(plain(note(1, BOB)))
        if self.waited == 4:
            assert self.relay is not None
            self.counted = self.relay._agent.feeds.counts(HONEST)
            self.relay.stop()

    def abort(self) -> None:
        pass


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


def test_live_events_are_counted_while_the_connection_stays_open(
    agent: Agent, clock: Clock
) -> None:
    """`farthing relays` shows the counts, and a connection may stay open for weeks."""
    session = LiveSession(clock)

    @contextmanager
    def opened(_url: str, _allowance: Allowance, _seconds: float) -> Iterator[Any]:
        yield session

    agent.relays.session = opened  # type: ignore[method-assign]
    session.relay = FollowedRelay(
        agent, HONEST, [public_key_of(BOB)], caching(agent), total_allowance(agent)
    )

    session.relay.stay()

    assert (session.counted.events, session.counted.stored) == (1, 1)
