"""The address of a client: that of its connection, or the one that a trusted proxy names."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from farthing.ports.hosts import client_network

Address = IPv4Address | IPv6Address

# Clients whose address a proxy does not state reliably. All of them are counted as one client.
UNKNOWN = "unknown"
_FOR = re.compile(r'(?:^|[;,])\s*for=("(?:[^"\\]|\\.)*"|[^;,\s]*)', re.IGNORECASE)
_LONGEST_HEADER = 4096
_OF_PROXIES = (
    "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip",
)  # fmt: skip


def address_of(text: str) -> Address | None:
    """An address as proxies write it, perhaps with a port and brackets."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def peer_of(transport: asyncio.BaseTransport | None) -> str:
    """The address at the other end of a connection."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    return peer[0] if peer else ""


def limit_key(text: str) -> str:
    """The key by which limits count a client: its address, or its IPv6 network, because everybody
    has a whole network. Empty for this machine, which is not limited."""
    address = address_of(text)
    if address is None:
        return text
    return "" if address.is_loopback else client_network(str(address))


class Proxies:
    """The reverse proxies that are trusted to name a client's address."""

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ip_network(network) for network in networks]

    def trusts(self, text: str) -> bool:
        if not self._networks:
            return False
        address = address_of(text)
        return address is not None and self._is_proxy(address)

    def _is_proxy(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def client(self, peer: str, headers: Mapping[str, str]) -> str:
        """The client's address. Each proxy appends the address that it sees on the right, so the
        client's is the first from the right that is not a proxy's. Entries further left may be
        forged. If the two headers disagree, one of them comes from the client, and the client is
        unknown."""
        if not self.trusts(peer):
            return peer
        chains = (
            _x_forwarded_for(headers.get("X-Forwarded-For", "")),
            _forwarded(headers.get("Forwarded", "")),
        )
        named = {self._client(chain) for chain in chains if chain}
        if not named:
            return peer
        return named.pop() if len(named) == 1 else UNKNOWN

    def _client(self, chain: Sequence[str]) -> str:
        address = None
        for text in reversed(chain):
            address = address_of(text)
            if address is None:
                return UNKNOWN
            if not self._is_proxy(address):
                break
        return str(address)


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Whether a proxy has passed the request on."""
    return any(name in headers for name in _OF_PROXIES)


def _x_forwarded_for(header: str) -> list[str]:
    return header[-_LONGEST_HEADER:].split(",") if header.strip() else []


def _forwarded(header: str) -> list[str]:
    return _FOR.findall(header[-_LONGEST_HEADER:])
