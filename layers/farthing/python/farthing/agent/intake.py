"""The check of events that a relay sends for followed keys: requested, not known yet, signed by the
author.

Signatures cost most, so they are checked last and in batches. A known event costs only one look-up.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from farthing.nostr.events import Event, InvalidEvent, parse_event, verify
from farthing.ports.relays import RelayFailed
from farthing.store.feeds import FeedCounts

_BATCH = 100
_BATCH_CHARACTERS = 1 << 20  # large events wait in smaller batches

# `Known` finds the known ids among some. `Take` handles new events and returns the useful number.
Known = Callable[[Iterable[str]], Container[str]]
Take = Callable[[Sequence[Event]], int]


class TooManyFaults(RelayFailed):
    """The relay has sent too many events that were not requested or not validly signed."""


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
        self._characters = 0  # of the waiting events
        self._all_faults = 0
        self._clear()

    def _clear(self) -> None:
        self._events = self._stored = self._faults = 0

    def offer(self, value: Any) -> Event | None:
        """The event, if it was requested. Its signature is checked later, with its batch."""
        try:
            event = parse_event(value)
        except InvalidEvent:
            self._fault()
            return None
        if event.pubkey not in self._authors or event.kind not in self._kinds:
            self._fault()
            return None
        self._waiting[event.id] = event
        self._characters += _characters(event)
        if len(self._waiting) >= _BATCH or self._characters >= _BATCH_CHARACTERS:
            self.flush()
        return event

    def flush(self) -> None:
        """Check the received events and pass them on."""
        waiting, self._waiting, self._characters = self._waiting, {}, 0
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
            raise TooManyFaults("the relay sends events that were not requested or not signed")

    def counts(self) -> FeedCounts:
        """The counts since the last call."""
        counts = FeedCounts(self._events, self._stored, self._faults)
        self._clear()
        return counts


def _characters(event: Event) -> int:
    return len(event.content) + sum(len(value) for tag in event.tags for value in tag)
