"""Who is connected: how many connections there are at once, in all and from one address, and how
fast an address asks. API Gateway has such limits of its own."""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable

from farthing.settings import Settings
from infra.local.server.client_address import Proxies, peer_of, visitor_of

# Files that are not connections: the database's, the logs', those to peers.
_OTHER_FILES = 256
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_MOST_REMEMBERED = 65536  # addresses, by their requests


class AddressRate:
    """How far each address is above its rate. By address, because a new connection would begin to
    count anew."""

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._excess: dict[str, tuple[float, float]] = {}  # above the rate, and when

    def count(self, visitor: str) -> float:
        """Count one more; how many are above the rate, 0 for those who are not counted."""
        if not visitor or not self._per_second:
            return 0
        now = self._clock()
        excess, then = self._excess.get(visitor, (0.0, now))
        excess = max(0.0, excess - self._per_second * (now - then)) + 1
        if len(self._excess) >= _MOST_REMEMBERED:
            self._excess.clear()
        self._excess[visitor] = excess, now
        return excess


class ConnectionLimits:
    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.proxies = Proxies(settings.trusted_proxies)
        self._most = min(settings.max_connections, _room_for(settings.max_connections))
        self._most_each = settings.max_connections_per_address
        self._requests = AddressRate(settings.requests_per_second, clock)
        self._request_burst = settings.request_burst
        self.messages = AddressRate(settings.address_messages_per_second, clock)
        self._inside: dict[asyncio.BaseTransport, str] = {}
        self._each: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._inside)

    def enter(self, transport: asyncio.WriteTransport) -> bool:
        """Take a new connection in, or turn it away if there is no room for it. A proxy's
        connections are those of many clients, so they are counted when the client is known."""
        peer = peer_of(transport)
        visitor = "" if self.proxies.trusts(peer) else visitor_of(peer)
        if len(self._inside) >= self._most or self._has_enough(visitor):
            transport.write(_FULL)
            transport.close()
            return False
        self._inside[transport] = visitor
        self._add(visitor)
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """Forget a connection that is gone, if it was taken in."""
        self._remove(self._inside.pop(transport, ""))

    def enter_by_proxy(self, visitor: str) -> bool:
        """Take in a client's socket behind a proxy; whether there is room for it."""
        if self._has_enough(visitor):
            return False
        self._add(visitor)
        return True

    def leave_by_proxy(self, visitor: str) -> None:
        self._remove(visitor)

    def is_too_fast(self, visitor: str) -> bool:
        """Count an HTTP request."""
        return self._requests.count(visitor) > self._request_burst

    def _add(self, visitor: str) -> None:
        if visitor:
            self._each[visitor] += 1

    def _remove(self, visitor: str) -> None:
        if visitor:
            self._each[visitor] -= 1
            if not self._each[visitor]:
                del self._each[visitor]

    def _has_enough(self, visitor: str) -> bool:
        return bool(visitor) and 0 < self._most_each <= self._each[visitor]


def _room_for(connections: int) -> int:
    """How many connections the process may have open, once it has asked for enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, soft - _OTHER_FILES)
