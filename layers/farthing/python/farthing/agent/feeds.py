"""Follow = subscribe: reading what followed keys write, at their own relays.

`FollowedRelay` is one relay: one connection, one subscription for all its keys. On one machine it
stays connected; in the cloud `catch_up_all` looks in from time to time. What a relay may cost is
bounded for each and for all, and a relay that fails waits longer each time.
"""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event as Flag
from typing import NamedTuple

from farthing.agent.borrowed import DAY, RunAll, keep_borrowed, one_by_one
from farthing.agent.catching_up import AUTHORS_AT_ONCE, CatchUp, abilities_of
from farthing.agent.intake import Intake, Known, Take, TooManyFaults
from farthing.agent.places import feed_places
from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.kinds import Keeping, keeping
from farthing.ports.relays import Allowance, AllowanceSpent, RelayFailed, RelaySession
from farthing.store.events import StoredEvent
from farthing.store.payment import BORROWED

log = logging.getLogger("farthing")

WINDOW_SECONDS = 3600
_AT_ONCE = 8  # relays that are read side by side, in the cloud
# A subscription starts that long ago, so that nothing falls between it and catching up.
_LIVE_OVERLAP = 60
# On a connection that stays open, the checkpoint moves that often.
_CHECKPOINT_SECONDS = 300


class Reading(NamedTuple):
    """What becomes of events: which are known already, and what is done with the others."""

    known: Known
    take: Take
    stores: bool


def caching(
    agent: Agent,
    run_all: RunAll = one_by_one,
    then: Callable[[Sequence[Event]], None] | None = None,
) -> Reading:
    """Events are stored here for a time; `then` is told of the new ones."""

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
    """Whether a borrowed event that replaces others was written long enough ago to be kept anew."""
    is_borrowed = stored.payment == BORROWED and stored.written <= agent.now - DAY
    return is_borrowed and keeping(stored.kind) is not Keeping.REGULAR


def total_allowance(agent: Agent) -> Allowance:
    settings = agent.settings
    events = settings.max_feed_events * max(1, settings.max_feed_relays)
    return Allowance(events, settings.max_feed_total_bytes, window_seconds=WINDOW_SECONDS)


class FollowedRelay:
    """One relay, used by one thread. `stop` may come from another."""

    def __init__(
        self, agent: Agent, url: str, authors: Sequence[str], reading: Reading, together: Allowance
    ) -> None:
        self.url = url
        self.authors = sorted(authors)
        self._agent = agent
        self._reading = reading
        settings = agent.settings
        self._allowance = Allowance(
            settings.max_feed_events, settings.max_feed_bytes, window_seconds=WINDOW_SECONDS,
            behind=together,
        )  # fmt: skip
        self._stopping = Flag()
        self._session: RelaySession | None = None

    def stop(self) -> None:
        self._stopping.set()
        if self._session is not None:
            self._session.abort()

    def look_in(self) -> bool:
        """Catch up once. Whether that went well; a relay that is to be left alone is."""
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
        """Catch up and go on live, over as many connections as it takes, until stopped."""
        wait: float = self._agent.feeds.state(self.url).not_before - self._agent.now
        while not self._stopping.wait(max(0.0, wait)):
            try:
                with self._connected() as (session, intake):
                    self._follow(session, intake)
                return
            except RelayFailed as error:
                if self._stopping.is_set():
                    return
                # Jitter: relays come back for many clients at once.
                wait = self._note(error) * random.uniform(0.5, 1.0)  # noqa: S311

    @contextmanager
    def _connected(self) -> Iterator[tuple[RelaySession, Intake]]:
        settings, reading = self._agent.settings, self._reading
        intake = Intake(
            self.authors, settings.follow_kinds, reading.known, reading.take,
            settings.max_feed_faults,
        )  # fmt: skip
        if self._allowance.is_spent:
            raise AllowanceSpent("the relay has sent as much as it may for now")
        self._abilities = abilities_of(self._agent, self.url)
        try:
            with self._agent.relays.session(
                self.url, self._allowance, settings.feed_seconds
            ) as session:
                self._session = session
                if self._stopping.is_set():
                    session.abort()
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
        """Subscribe first and catch up then, so that nothing falls between the two."""
        kinds = sorted(self._agent.settings.follow_kinds)
        for at in range(0, len(self.authors), AUTHORS_AT_ONCE):
            authors = self.authors[at : at + AUTHORS_AT_ONCE]
            since = self._agent.now - _LIVE_OVERLAP
            live = {"authors": authors, "kinds": kinds, "since": since}
            session.subscribe(f"follow-{authors[0][:16]}", [live], intake.offer)
        self._catch_up(session, intake)
        checkpoint = self._agent.now + _CHECKPOINT_SECONDS
        while not self._stopping.is_set():
            session.wait()
            intake.flush()
            if self._agent.now >= checkpoint:
                self._move_checkpoint(session, intake)
                checkpoint = self._agent.now + _CHECKPOINT_SECONDS

    def _move_checkpoint(self, session: RelaySession, intake: Intake) -> None:
        """Numbers are asked for; a time is now, since all until now has come live."""
        if self._abilities.changes:
            self._catch_up(session, intake)
            return
        feeds = self._agent.feeds
        feeds.keep(replace(feeds.state(self.url), time=self._agent.now))
        feeds.count(self.url, intake.counts())

    def _note(self, error: RelayFailed) -> float:
        """Keep what went wrong. Seconds to wait before the relay is tried again."""
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
            log.warning("followed keys cannot be read at %s: %s", self.url, error)
        return wait


@dataclass
class Looked:
    relays: int = 0
    failed: int = 0


def catch_up_all(agent: Agent, reading: Reading) -> Looked:
    """Look in once at every relay of followed keys. One that fails does not keep the others."""
    together = total_allowance(agent)
    relays = [
        FollowedRelay(agent, url, authors, reading, together)
        for url, authors in feed_places(agent).items()
    ]
    with ThreadPoolExecutor(_AT_ONCE) as readers:
        done = list(readers.map(FollowedRelay.look_in, relays))
    return Looked(done.count(True), done.count(False))


def is_reading(agent: Agent) -> bool:
    """Whether the agent itself reads what followed keys write: only where it keeps it."""
    return agent.settings.follow_content in ("cache", "rebroadcast")


def is_rebroadcasting(agent: Agent) -> bool:
    return agent.settings.follow_content == "rebroadcast"
