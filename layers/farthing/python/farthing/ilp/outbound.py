"""The port for requests that we send: only to peers' registered hosts, see `check_registered`."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


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


class NoOutbound:
    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        raise OutboundFailed("this agent sends no requests")


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
