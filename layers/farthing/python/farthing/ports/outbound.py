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
# Statuses of a peer that does not recognise the callback yet, because it has not received our 202.
_NOT_YET = frozenset({404, 408, 409, 425, 429})


class OutboundFailed(Exception):
    """No answer came: the other side cannot be reached, or is too slow."""


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
        """Send a reply to the peer that asked for it, if possible after our response to that peer.
        Tries again for `seconds` until the peer accepts the reply."""
        ...


def side_by_side(outbound: Outbound, calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run calls that each send a request, at the same time if the port can. The results are in the
    order of the calls. A call must not raise."""
    together = getattr(outbound, "side_by_side", None)
    if together is None or len(calls) < 2:
        return [call() for call in calls]
    found: list[T] = together(calls)
    return found


class NoOutbound:
    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        raise OutboundFailed("this agent has no outbound connection")

    def call_back(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> None:
        pass


class CallbackAttempts:
    """The attempts to send a reply to a callback: for each, the pause before it and its time limit.
    They end when the reply is accepted or finally refused, or when the time is up."""

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
        """Log a reply that the peer has not accepted. The peer can ask again with the same
        Request-Id, and gets the same reply."""
        if self._trouble:
            log.warning("a peer did not accept a callback", extra={"reason": self._trouble})


def check_registered(url: str, endpoint: str) -> None:
    """Refuse a peer's URL that is not on the peer's registered host.

    Otherwise a peer could make us send requests to any host that we can reach.
    """
    origin = origin_of(url)
    if origin is None or origin != origin_of(endpoint):
        raise NotRegistered("expected a URL on the peer's registered host")


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of a plain HTTP URL. None for a URL that two parsers could read
    differently: with a user name, a backslash, white space or a character outside ASCII."""
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
