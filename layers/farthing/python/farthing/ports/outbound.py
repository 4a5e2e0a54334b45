"""The port for requests that we send, and the check that they go to registered hosts only."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

log = logging.getLogger("farthing")

_PORTS = {"http": 80, "https": 443}
_WAITS = (0.1, 0.3, 0.9, 2.7)  # seconds between attempts
# A peer may not know its own request before it has our 202, and answers a callback with these.
_NOT_YET = frozenset({404, 408, 409, 425, 429})


class OutboundFailed(Exception):
    """No answer: the other side is not there, or not in time."""


class OutboundTimeout(OutboundFailed):
    """The request may have arrived, but no answer came in time."""


class NotRegistered(ValueError):
    """The URL is not under the peer's registered endpoint."""


class Response(NamedTuple):
    status: int
    body: bytes


class Outbound(Protocol):
    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> Response: ...

    def call_back(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> None:
        """Bring a reply to the peer that asked for it, after our response to that peer where that
        is possible. It is tried again while it is not taken, for so many seconds."""
        ...


def side_by_side(outbound: Outbound, calls: Sequence[Callable[[], T]]) -> list[T]:
    """Calls that each send a request, at the same time where the outbound port can; results in
    their order. A call must not raise."""
    together = getattr(outbound, "side_by_side", None)
    if together is None or len(calls) < 2:
        return [call() for call in calls]
    found: list[T] = together(calls)
    return found


class NoOutbound:
    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        raise OutboundFailed("this agent sends no requests")

    def call_back(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> None:
        pass


class CallbackAttempts:
    """The attempts to bring a reply to a callback: for each, how long to wait before it and how
    long it may take. They end when the reply is taken or refused for good, or the time is up."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends = clock() + seconds
        self._trouble = ""
        self._is_over = False

    def __iter__(self) -> Iterator[tuple[float, float]]:
        for wait in (0.0, *_WAITS):
            left = self._ends - self._clock() - wait
            if self._is_over or left <= 0:
                return
            yield wait, left

    def answered(self, status: int) -> None:
        self._trouble = f"status {status}" if status >= 300 else ""
        self._is_over = status not in _NOT_YET and status < 500

    def failed(self, error: OutboundFailed) -> None:
        self._trouble = str(error)

    def report(self) -> None:
        """Say so where the reply was not taken. The peer can ask again, with the same Request-Id,
        and gets the same reply."""
        if self._trouble:
            log.warning("a callback was not taken", extra={"reason": self._trouble})


def check_registered(url: str, endpoint: str) -> None:
    """Refuse a URL that a peer names unless it is on the peer's registered host.

    Otherwise a peer could have us send requests to any place that we can reach.
    """
    origin = origin_of(url)
    if origin is None or origin != origin_of(endpoint):
        raise NotRegistered("not on the peer's registered host")


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of a plain HTTP URL; None for one that two readers could take for two
    places: with a user's name, a backslash, white space or anything else beyond ASCII."""
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port
