"""Follow = subscribe: reading the events of followed keys at the keys' own relays.

`FollowedRelay` is one relay: one connection, one subscription for all its keys. On one machine the
connection stays open; in the cloud `catch_up_all` reads each relay from time to time. Events and
bytes are limited for each relay and for all relays together. After each failure of a relay the
pause before the next attempt is longer.
"""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event as Flag
from typing import Any, NamedTuple

from farthing.agent.borrowed import DAY, RunAll, keep_borrowed, one_by_one
from farthing.agent.catching_up import AUTHORS_AT_ONCE, CatchUp, abilities_of
from farthing.agent.intake import Intake, Known, Take, TooManyFaults
from farthing.agent.places import feed_places
from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.kinds import Keeping, keeping
from farthing.ports.relays import (
    Allowance,
    AllowanceSpent,
    RelayFailed,
    RelaySession,
    SharedAllowance,
)
from farthing.store.events import StoredEvent
from farthing.store.payment import BORROWED

log = logging.getLogger("farthing")

WINDOW_SECONDS = 3600
_AT_ONCE = 8  # relays that are read in parallel, in the cloud
# The seconds for which relays may send in one round, in the cloud. The last request may take two
# minutes more, and the function ends after five minutes.
_ROUND_SECONDS = 150
# A subscription starts this many seconds in the past, so that no event is missed between it and
# catching up.
_LIVE_OVERLAP = 60
# Seconds between updates of the checkpoint on an open connection.
_CHECKPOINT_SECONDS = 300
# Seconds between updates of the counts that `farthing relays` shows.
_COUNT_SECONDS = 10


class Reading(NamedTuple):
    """How received events are handled: `known` finds those that are known, `take` handles the
    others."""

    known: Known
    take: Take
    stores: bool


def caching(
    agent: Agent,
    run_all: RunAll = one_by_one,
    then: Callable[[Sequence[Event]], None] | None = None,
) -> Reading:
    """Store events for a limited time, and pass the new ones to `then`."""

    def take(events: Sequence[Event]) -> int:
        new = keep_borrowed(agent, events, run_all)
        if then is not None:
            then(new)
        return len(new)

    def known(ids: Iterable[str]) -> set[str]:
        stored = agent.events.get_many(ids)
        return {each.id for each in stored.values() if not _may_be_renewed(agent, each)}

    return Reading(known, take, stores=True)


def _may_be_renewed(agent: Agent, stored: StoredEvent) -> bool:
    """Whether a borrowed replaceable event was stored long enough ago to be stored again."""
    is_borrowed = stored.payment == BORROWED and stored.written <= agent.now - DAY
    return is_borrowed and keeping(stored.kind) is not Keeping.REGULAR


def total_allowance(agent: Agent, seconds: float = float("inf")) -> SharedAllowance:
    settings = agent.settings
    relays = max(1, settings.max_feed_relays)
    return SharedAllowance(
        settings.max_feed_events * relays, settings.max_feed_total_bytes, relays,
        window_seconds=WINDOW_SECONDS, seconds=seconds, clock=agent.clock,
    )  # fmt: skip


class FollowedRelay:
    """One relay, used by one thread. Another thread may call `stop`."""

    def __init__(
        self,
        agent: Agent,
        url: str,
        authors: Sequence[str],
        reading: Reading,
        together: SharedAllowance,
    ) -> None:
        self.url = url
        self.authors = sorted(authors)
        self._agent = agent
        self._reading = reading
        settings = agent.settings
        self._allowance = Allowance(
            settings.max_feed_events, settings.max_feed_bytes, window_seconds=WINDOW_SECONDS,
            behind=together.of(url),
        )  # fmt: skip
        self._stopping = Flag()
        self._session: RelaySession | None = None

    def stop(self) -> None:
        self._stopping.set()
        if self._session is not None:
            self._session.abort()

    @property
    def is_stopped(self) -> bool:
        return self._stopping.is_set()

    def look_in(self) -> bool:
        """Catch up once. False after a failure, if the relay may not be asked yet, or if no time is
        left."""
        if self._allowance.is_over:
            return False
        if self._agent.feeds.state(self.url).not_before > self._agent.now:
            return False
        try:
            with self._connected() as (session, intake):
                self._catch_up(session, intake)
        except RelayFailed as error:
            self._note(error)
            return False
        return True

    def stay(self) -> None:
        """Catch up and then read live events until stopped. A lost connection is opened again."""
        wait: float = self._agent.feeds.state(self.url).not_before - self._agent.now
        while not self._stopping.wait(max(0.0, wait)):
            try:
                with self._connected() as (session, intake):
                    self._follow(session, intake)
                return
            except RelayFailed as error:
                if self._stopping.is_set():
                    return
                # Jitter: a restarted relay should not get all its clients back in one moment.
                wait = self._note(error) * random.uniform(0.5, 1.0)  # noqa: S311

    @contextmanager
    def _connected(self) -> Iterator[tuple[RelaySession, Intake]]:
        settings, reading = self._agent.settings, self._reading
        intake = Intake(
            self.authors, settings.follow_kinds, reading.known, reading.take,
            settings.max_feed_faults,
        )  # fmt: skip
        self._allowance.check()
        self._abilities = abilities_of(self._agent, self.url)
        try:
            with self._agent.relays.session(
                self.url, self._allowance, settings.feed_seconds
            ) as session:
                self._session = session
                if self.is_stopped:  # while the connection was opened, perhaps long ago
                    raise RelayFailed("stopped")
                yield session, intake
        finally:
            self._session = None
            self._agent.feeds.count(self.url, intake.counts())

    def _catch_up(self, session: RelaySession, intake: Intake) -> None:
        feeds = self._agent.feeds
        look = CatchUp(
            self._agent, session, intake, self._abilities, self._reading.stores, feeds.keep
        )
        look.run(feeds.state(self.url), self.authors)
        feeds.count(self.url, intake.counts())

    def _follow(self, session: RelaySession, intake: Intake) -> None:
        """Subscribe first and catch up afterwards, so that no event is missed in between."""
        kinds = sorted(self._agent.settings.follow_kinds)
        for at in range(0, len(self.authors), AUTHORS_AT_ONCE):
            authors = self.authors[at : at + AUTHORS_AT_ONCE]
            since = self._agent.now - _LIVE_OVERLAP
            live = {"authors": authors, "kinds": kinds, "since": since}
            session.subscribe(f"follow-{authors[0][:16]}", [live], intake.offer)
        self._catch_up(session, intake)
        checkpoint = self._agent.now + _CHECKPOINT_SECONDS
        counted = self._agent.now
        while not self._stopping.is_set():
            session.wait()
            intake.flush()
            if self._agent.now >= counted + _COUNT_SECONDS:
                self._agent.feeds.count(self.url, intake.counts())
                counted = self._agent.now
            if self._agent.now >= checkpoint:
                self._move_checkpoint(session, intake)
                checkpoint = self._agent.now + _CHECKPOINT_SECONDS

    def _move_checkpoint(self, session: RelaySession, intake: Intake) -> None:
        """Move the checkpoint: a number is asked of the relay; a time is now, as all events until
        now have come live."""
        if self._abilities.changes:
            self._catch_up(session, intake)
            return
        feeds = self._agent.feeds
        feeds.keep(replace(feeds.state(self.url), time=self._agent.now))
        feeds.count(self.url, intake.counts())

    def _note(self, error: RelayFailed) -> float:
        """Store the failure. Returns the seconds to wait before the next attempt."""
        settings, state = self._agent.settings, self._agent.feeds.state(self.url)
        wait: int = min(settings.feed_retry_seconds, 1 << min(state.failures, 20))
        if isinstance(error, TooManyFaults | AllowanceSpent):
            wait = WINDOW_SECONDS
        state = replace(
            state, failures=state.failures + 1, trouble=str(error)[:200],
            not_before=self._agent.now + wait,
        )  # fmt: skip
        self._agent.feeds.keep(state)
        if state.failures == 1 or wait == WINDOW_SECONDS:
            log.warning(
                "followed keys cannot be read at a relay",
                extra={"relay": self.url, "reason": str(error)},
            )
        return wait


@dataclass
class Looked:
    relays: int = 0
    failed: int = 0


def catch_up_all(agent: Agent, reading: Reading) -> Looked:
    """Read every relay of followed keys once. A failing relay does not stop the others. Relays
    that failed or were read most recently come last. So if there is no time for all relays, those
    that were left out come first in the next round."""
    together = total_allowance(agent, _ROUND_SECONDS)
    states = {state.url: (state.failures, state.time) for state in agent.feeds.states()}
    places = feed_places(agent)
    relays = [
        FollowedRelay(agent, url, places[url], reading, together)
        for url in sorted(places, key=lambda url: states.get(url, (0, 0)))
    ]
    with ThreadPoolExecutor(_AT_ONCE) as readers:
        done = list(readers.map(FollowedRelay.look_in, relays))
    return Looked(done.count(True), done.count(False))


def is_reading(agent: Agent) -> bool:
    """Whether the agent reads the events of followed keys: only if it also stores them."""
    return agent.settings.follow_content in ("cache", "rebroadcast")


def is_rebroadcasting(agent: Agent) -> bool:
    return agent.settings.follow_content == "rebroadcast"


def read_feeds(agent: Agent) -> dict[str, Any]:
    """On a schedule in the cloud: read every relay of followed keys once, if the settings say
    so. On one machine threads stay connected."""
    if not is_reading(agent):
        return {"relays": 0, "failed": 0}
    then = None
    if is_rebroadcasting(agent):
        # Imported here, because few agents rebroadcast.
        from farthing.agent.broadcast import rebroadcast

        then = partial(rebroadcast, agent)
    looked = catch_up_all(agent, caching(agent, then=then))
    return {"relays": looked.relays, "failed": looked.failed}
