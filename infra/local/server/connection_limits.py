"""Limits of the local server: open connections, in all and from one address, and requests and
messages per second from one address. In the cloud, API Gateway has its own limits."""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable

from farthing.settings import Settings
from infra.local.server.client_address import Proxies, limit_key, peer_of

# Open files that are not connections of clients: database, logs, connections to peers.
_OTHER_FILES = 256
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_MOST_REMEMBERED = 65536  # addresses, by their requests


class AddressRate:
    """How far each address is above its rate. Counted by address, because a client could start at
    zero with a new connection."""

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._excess: dict[str, tuple[float, float]] = {}  # above the rate, and when

    def count(self, key: str) -> float:
        """Count one more. Returns how many are above the rate; 0 for clients without a limit."""
        if not key or not self._per_second:
            return 0
        now = self._clock()
        excess, then = self._excess.get(key, (0.0, now))
        excess = max(0.0, excess - self._per_second * (now - then)) + 1
        if len(self._excess) >= _MOST_REMEMBERED:
            self._excess.clear()
        self._excess[key] = excess, now
        return excess


class ConnectionLimits:
    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.proxies = Proxies(settings.trusted_proxies)
        self._most = min(settings.max_connections, _room_for(settings.max_connections))
        self._most_each = settings.max_connections_per_address
        self._requests = AddressRate(settings.requests_per_second, clock)
        self._request_burst = settings.request_burst
        self.messages = AddressRate(settings.address_messages_per_second, clock)
        # Whether the operator has blocked an address (NIP-86); set once the rules can be read.
        self.is_blocked: Callable[[str], bool] = lambda _address: False
        self._inside: dict[asyncio.BaseTransport, str] = {}
        self._each: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._inside)

    def enter(self, transport: asyncio.WriteTransport) -> bool:
        """Accept a new connection, or refuse it with 503. A proxy's connections belong to many
        clients: they are counted when the client is known."""
        peer = peer_of(transport)
        key = "" if self.proxies.trusts(peer) else limit_key(peer)
        if len(self._inside) >= self._most or self._has_enough(key) or self.is_blocked(peer):
            transport.write(_FULL)
            transport.close()
            return False
        self._inside[transport] = key
        self._add(key)
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """Forget a connection that has ended, if it was accepted."""
        self._remove(self._inside.pop(transport, ""))

    def enter_by_proxy(self, key: str) -> bool:
        """Accept a client's WebSocket behind a proxy. Returns whether its address may have more."""
        if self._has_enough(key):
            return False
        self._add(key)
        return True

    def leave_by_proxy(self, key: str) -> None:
        self._remove(key)

    def is_too_fast(self, key: str) -> bool:
        """Count an HTTP request."""
        return self._requests.count(key) > self._request_burst

    def _add(self, key: str) -> None:
        if key:
            self._each[key] += 1

    def _remove(self, key: str) -> None:
        if key:
            self._each[key] -= 1
            if not self._each[key]:
                del self._each[key]

    def _has_enough(self, key: str) -> bool:
        return bool(key) and 0 < self._most_each <= self._each[key]


def _room_for(connections: int) -> int:
    """The number of connections that the process may have open, after raising its own limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, soft - _OTHER_FILES)
