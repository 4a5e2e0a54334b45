"""Who is connected: how many connections there are at once, in all and from one address, and how
many requests an address makes. API Gateway has such limits of its own."""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from farthing.settings import Settings

# Files that are not connections: the database's, the logs', those to peers.
_OTHER_FILES = 256
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_MOST_REMEMBERED = 65536  # addresses, by their requests


class ConnectionLimits:
    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._most = min(settings.max_connections, _room_for(settings.max_connections))
        self._most_each = settings.max_connections_per_address
        self._rate, self._burst = settings.requests_per_second, settings.request_burst
        self._requests: dict[str, tuple[float, float]] = {}  # beyond the rate, and when
        self._inside: dict[asyncio.BaseTransport, str] = {}
        self._each: Counter[str] = Counter()

    def enter(self, transport: asyncio.WriteTransport) -> bool:
        """Take a new connection in, or turn it away if there is no room for it."""
        visitor = visitor_at(transport)
        if len(self._inside) >= self._most or self._has_enough(visitor):
            transport.write(_FULL)
            transport.close()
            return False
        self._inside[transport] = visitor
        self._each[visitor] += 1
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """Forget a connection that is gone, if it was taken in."""
        visitor = self._inside.pop(transport, None)
        if visitor is not None:
            self._each[visitor] -= 1
            if not self._each[visitor]:
                del self._each[visitor]

    def is_too_fast(self, transport: asyncio.BaseTransport | None) -> bool:
        """Count a request. By address: a new connection would begin to count from anew, and plain
        requests have none."""
        visitor = "" if transport is None else self._inside.get(transport, "")
        if not visitor or not self._rate:
            return False
        now = self._clock()
        excess, then = self._requests.get(visitor, (0.0, now))
        excess = max(0.0, excess - self._rate * (now - then)) + 1
        if len(self._requests) >= _MOST_REMEMBERED:
            self._requests.clear()
        self._requests[visitor] = excess, now
        return excess > self._burst

    def _has_enough(self, visitor: str) -> bool:
        return bool(visitor) and 0 < self._most_each <= self._each[visitor]


def visitor_at(transport: asyncio.BaseTransport) -> str:
    """Whom connections are counted by: an address, or an IPv6 network, of which anyone has one.
    Nobody for this machine's own, where a proxy speaks for many."""
    peer = transport.get_extra_info("peername")
    if not peer:
        return ""
    address = ip_address(peer[0].partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return ""
    return str(address) if address.version == 4 else address.packed[:8].hex()


def _room_for(connections: int) -> int:
    """How many connections the process may have open, once it has asked for enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, soft - _OTHER_FILES)
