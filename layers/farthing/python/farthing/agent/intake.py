"""What a relay sends of followed keys, checked: asked for, not known yet, signed by its author.

Signatures cost most and are checked last, and in batches, so that what is known costs one look-up.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from farthing.nostr.events import Event, InvalidEvent, parse_event, verify
from farthing.ports.relays import RelayFailed
from farthing.store.feeds import FeedCounts

_BATCH = 100

# Which of some ids are known; and what is done with new events: how many were of use.
Known = Callable[[Iterable[str]], Container[str]]
Take = Callable[[Sequence[Event]], int]


class TooManyFaults(RelayFailed):
    """The relay sends what nobody asked for, or what nobody signed."""


class Intake:
    """Used by one thread."""

    def __init__(
        self,
        authors: Iterable[str],
        kinds: Iterable[int],
        known: Known,
        take: Take,
        most_faults: int,
    ) -> None:
        self._authors = frozenset(authors)
        self._kinds = frozenset(kinds)
        self._known = known
        self._take = take
        self._most_faults = most_faults
        self._waiting: dict[str, Event] = {}
        self._all_faults = 0
        self._clear()

    def _clear(self) -> None:
        self._events = self._stored = self._faults = 0

    def offer(self, value: Any) -> Event | None:
        """The event, if it is one that was asked for. Its signature is checked with its batch."""
        try:
            event = parse_event(value)
        except InvalidEvent:
            self._fault()
            return None
        if event.pubkey not in self._authors or event.kind not in self._kinds:
            self._fault()
            return None
        self._waiting[event.id] = event
        if len(self._waiting) >= _BATCH:
            self.flush()
        return event

    def flush(self) -> None:
        """Check and hand on what has come."""
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        known = self._known(waiting)
        new = [
            event for event in waiting.values() if event.id not in known and self._is_true(event)
        ]
        self._events += len(new)
        if new:
            self._stored += self._take(new)

    def _is_true(self, event: Event) -> bool:
        try:
            verify(event)
        except InvalidEvent:
            self._fault()
            return False
        return True

    def _fault(self) -> None:
        self._faults += 1
        self._all_faults += 1
        if self._all_faults > self._most_faults:
            raise TooManyFaults("the relay sends events that are not asked for, or not signed")

    def counts(self) -> FeedCounts:
        """What has come since the last look."""
        counts = FeedCounts(self._events, self._stored, self._faults)
        self._clear()
        return counts
