"""The port for other relays, which we talk to as a client of theirs: read, follow the changes,
reconcile, publish. Nothing that comes back is checked.

What a relay may cost is bounded: `ReadLimits` for one answer, an `Allowance` for many.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from farthing.nostr.negentropy import SealedVector

Filter = Mapping[str, Any]


class RelayFailed(Exception):
    """The relay cannot be reached, or does not answer as a relay does."""


class RelayRefused(RelayFailed):
    """The relay answers that it will not do what it was asked."""


class AllowanceSpent(RelayFailed):
    """The relay has sent as much as it may for now."""


class ReadLimits(NamedTuple):
    """What one answer of a relay may cost us."""

    events: int
    octets: int  # of all frames together
    seconds: float


class Allowance:
    """Events and octets that may be read in a window of time. One allowance may stand behind
    another: a relay has its own, and all relays together have one."""

    def __init__(
        self,
        events: int,
        octets: int,
        *,
        window_seconds: float = float("inf"),
        behind: "Allowance | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = (events, octets)
        self._window_seconds = window_seconds
        self._behind = behind
        self._clock = clock
        self._lock = Lock()
        self._renew()

    def _renew(self) -> None:
        self._events, self._octets = self._most
        self._ends = self._clock() + self._window_seconds

    def spend(self, events: int, octets: int) -> None:
        """AllowanceSpent where there is no more."""
        with self._lock:
            if self._clock() >= self._ends:
                self._renew()
            self._events -= events
            self._octets -= octets
            if self._events < 0 or self._octets < 0:
                raise AllowanceSpent("the relay has sent as much as it may for now")
        if self._behind is not None:
            self._behind.spend(events, octets)

    @property
    def is_spent(self) -> bool:
        with self._lock:
            spent = self._clock() < self._ends and (self._events <= 0 or self._octets <= 0)
        return spent or (self._behind is not None and self._behind.is_spent)


class Numbered(NamedTuple):
    """One message of a changes feed (NIP-CF): an event and its number; or, without an event, the
    end of what is stored, with the number to go on from."""

    number: int
    event: Any = None
    truncated: bool = False  # there is more: ask again from `number`


class Published(NamedTuple):
    """What a relay said to an EVENT."""

    accepted: bool
    message: str

    @property
    def prefix(self) -> str:
        return self.message.partition(":")[0]


class RelaySession(Protocol):
    """One connection to a relay. It is used by one thread; `abort` may come from another."""

    def read(self, filters: Sequence[Filter]) -> Iterator[Any]:
        """Stored events as they come, until the relay has sent all of them."""
        ...

    def changes(self, filter: Filter, since: int) -> Iterator[Numbered]:
        """Stored events above a number, and the end of them (NIP-CF)."""
        ...

    def reconcile(self, filter: Filter, ours: "SealedVector") -> Iterator[str]:
        """Ids of matching events that the relay has and we do not (NIP-77)."""
        ...

    def subscribe(
        self, name: str, filters: Sequence[Filter], take: Callable[[Any], object]
    ) -> None:
        """Have `take` called with each event of a subscription, whenever frames are read."""
        ...

    def wait(self) -> None:
        """Read frames for a moment, for the sake of subscriptions."""
        ...

    def publish(self, event: Mapping[str, Any]) -> Published:
        """Send an event, and wait for the relay's OK."""
        ...

    def abort(self) -> None:
        """End the connection at once."""
        ...


class Relays(Protocol):
    def read(self, url: str, filters: Sequence[Filter], limits: ReadLimits) -> Iterator[Any]:
        """Stored events as they come, until the relay has sent all of them or a limit is reached.
        RelayFailed if the relay does not answer."""
        ...

    def session(
        self, url: str, allowance: Allowance, seconds: float
    ) -> AbstractContextManager[RelaySession]:
        """A connection. No answer may take longer than so many seconds. RelayFailed, here and from
        everything that the session does, where the relay fails."""
        ...

    def information(self, url: str, seconds: float) -> Mapping[str, Any]:
        """The relay information document (NIP-11). RelayFailed where there is none."""
        ...


class NoRelays:
    def read(self, url: str, filters: Sequence[Filter], limits: ReadLimits) -> Iterator[Any]:
        raise RelayFailed("this agent reads no other relays")

    def session(
        self, url: str, allowance: Allowance, seconds: float
    ) -> AbstractContextManager[RelaySession]:
        raise RelayFailed("this agent reads no other relays")

    def information(self, url: str, seconds: float) -> Mapping[str, Any]:
        raise RelayFailed("this agent reads no other relays")
