"""The port for other relays, of which this agent is a client: read, follow the changes, reconcile,
publish. The port does not check the events that come back.

Reading is limited: by `ReadLimits` for one answer, by an `Allowance` for many.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from farthing.nostr.negentropy import SealedVector

Filter = Mapping[str, Any]

_ALL_SPENT = "all relays together have sent as much as they may for now"


class RelayFailed(Exception):
    """The relay cannot be reached, or breaks the protocol."""


class RelayRefused(RelayFailed):
    """The relay has refused the request."""


class TooMuchAsked(RelayRefused):
    """The relay would answer a smaller request, for example one for a shorter period."""


class AllowanceSpent(RelayFailed):
    """The relay has used up its allowance for now."""


class TimeSpent(RelayFailed):
    """The time for reading relays is over for now."""


class ReadLimits(NamedTuple):
    """The limits of one answer of a relay."""

    events: int
    octets: int  # of all frames together
    seconds: float


class Allowance:
    """Events and octets that may be read in a window of time, and seconds after which nothing may
    be read any more. One allowance may stand behind another: a relay has its own, and all relays
    together have one. `spent` tells of which of them nothing is left."""

    def __init__(
        self,
        events: int,
        octets: int,
        *,
        window_seconds: float = float("inf"),
        seconds: float = float("inf"),
        behind: "Allowance | None" = None,
        clock: Callable[[], float] = time.monotonic,
        spent: str = "the relay has sent as much as it may for now",
    ) -> None:
        self._spent = spent
        self._most = (events, octets)
        self._window_seconds = window_seconds
        self._behind = behind
        self._clock = clock
        self._over = clock() + seconds
        self._lock = Lock()
        self._renew()

    def _renew(self) -> None:
        self._events, self._octets = self._most
        self._ends = self._clock() + self._window_seconds

    def spend(self, events: int, octets: int) -> None:
        """Use a part of the allowance. Raises AllowanceSpent if it is exceeded, and TimeSpent when
        its time is over."""
        if self._clock() >= self._over:
            raise TimeSpent("expected the relay to finish in the time for reading relays")
        with self._lock:
            if self._clock() >= self._ends:
                self._renew()
            self._events -= events
            self._octets -= octets
            if self._events < 0 or self._octets < 0:
                raise AllowanceSpent(self._spent)
        if self._behind is not None:
            self._behind.spend(events, octets)

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return self._clock() >= self._over or (self._behind is not None and self._behind.is_over)

    def check(self) -> None:
        """Raises AllowanceSpent if nothing is left."""
        with self._lock:
            if self._clock() < self._ends and (self._events <= 0 or self._octets <= 0):
                raise AllowanceSpent(self._spent)
        if self._behind is not None:
            self._behind.check()


class SharedAllowance:
    """What all relays together may send in a window of time. Half of the octets is for those that
    come first. The other half is set aside in equal parts, so relays that flood leave a part for
    each of the others."""

    def __init__(
        self,
        events: int,
        octets: int,
        parts: int,
        *,
        window_seconds: float = float("inf"),
        seconds: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        def allowance(octets: int) -> Allowance:
            return Allowance(
                events, octets, window_seconds=window_seconds, seconds=seconds, clock=clock,
                spent=_ALL_SPENT,
            )  # fmt: skip

        self._events, aside = events, octets // 2
        self._first, self._aside = allowance(octets - aside), allowance(aside)
        self._part_octets = aside // parts
        self._window_seconds, self._clock = window_seconds, clock
        self._most_parts = 4 * parts
        self._parts: dict[str, Part] = {}

    def of(self, name: str) -> "Part":
        """The part of one relay, which is the same whenever it is asked for."""
        if name not in self._parts:
            if len(self._parts) >= self._most_parts:  # of relays that are not read any more
                self._parts.clear()
            self._parts[name] = Part(
                self._events, self._part_octets, first=self._first, behind=self._aside,
                window_seconds=self._window_seconds, clock=self._clock,
            )  # fmt: skip
        return self._parts[name]


class Part(Allowance):
    """What one relay may send of a shared allowance. Its own part comes last."""

    def __init__(
        self,
        events: int,
        octets: int,
        *,
        first: Allowance,
        behind: Allowance,
        window_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(
            events, octets, window_seconds=window_seconds, behind=behind, clock=clock,
            spent=_ALL_SPENT,
        )  # fmt: skip
        self._first = first

    def spend(self, events: int, octets: int) -> None:
        try:
            self._first.spend(events, octets)
        except AllowanceSpent:
            super().spend(events, octets)

    def check(self) -> None:
        try:
            self._first.check()
        except AllowanceSpent:
            super().check()


class Numbered(NamedTuple):
    """One message of a changes feed (NIP-CF): an event and its number. Without an event, it is the
    end of the stored events, with the number to continue from."""

    number: int
    event: Any = None
    truncated: bool = False  # there is more: ask again from `number`


class Published(NamedTuple):
    """A relay's answer to an EVENT."""

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
        """Stored events above a number, then the message at their end (NIP-CF)."""
        ...

    def reconcile(self, filter: Filter, ours: "SealedVector") -> Iterator[str]:
        """Ids of matching events that the relay has and we do not (NIP-77)."""
        ...

    def subscribe(
        self, name: str, filters: Sequence[Filter], take: Callable[[Any], object]
    ) -> None:
        """Open a subscription. `take` is called with each of its events, whenever frames are
        read."""
        ...

    def wait(self) -> None:
        """Read frames for a moment, so that subscriptions get their events."""
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
        """Open a connection. No answer may take longer than `seconds`. Opening and every use of the
        session raise RelayFailed if the relay fails."""
        ...

    def information(self, url: str, seconds: float) -> Mapping[str, Any]:
        """The relay information document (NIP-11). Raises RelayFailed if there is none."""
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
