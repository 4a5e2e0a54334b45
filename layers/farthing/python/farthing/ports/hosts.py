"""The hosts that the agent may connect to. Peers and followed agents name URLs. Without this check
they could make us send requests into our own network.

A name is resolved once, every address is checked, and the connection goes to a checked address: a
second look-up could give another answer.
"""

import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

_NAT64 = IPv6Address("64:ff9b::")
_NAT64_BITS = 96

# What `socket.getaddrinfo` returns for one address: family, type, protocol, name, address.
AddressInfo = tuple[Any, Any, int, str, Any]
Resolve = Callable[[str, int], list[AddressInfo]]


PRIVATE = "is at a private address; FARTHING_ALLOW_PRIVATE_HOSTS=1 allows it"


class HostNotAllowed(ValueError):
    """The host is private, or the scheme is not allowed."""


def client_network(text: str) -> str:
    """The text by which a limit counts a client: its address, or its IPv6 network, because
    everybody has a whole network."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    address = getattr(address, "ipv4_mapped", None) or address
    return str(address) if address.version == 4 else address.packed[:8].hex()


def is_public(address: str) -> bool:
    """Whether an IP address can belong to a stranger's host: it is not private, loopback,
    link-local, multicast or reserved. An IPv4 address inside an IPv6 address is checked as well."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(each.is_global and not each.is_multicast for each in _forms(parsed))


def _forms(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """The address, and the IPv4 address that an IPv6 address leads to."""
    if isinstance(address, IPv4Address):
        return [address]
    carried: list[IPv4Address | IPv6Address | None] = [address.ipv4_mapped, address.sixtofour]
    if int(address) >> (128 - _NAT64_BITS) == int(_NAT64) >> (128 - _NAT64_BITS):
        carried.append(IPv4Address(int(address) & 0xFFFFFFFF))
    found = [each for each in carried if each is not None]
    return found or [address]


def why_unreachable(error: OSError) -> str:
    """The reason why a connection could not be opened, for the operator."""
    match error:
        case ConnectionRefusedError():
            return "the connection was refused"
        case socket.gaierror():
            return "the host has no address"
        case TimeoutError():
            return "it took too long"
        case ssl.SSLError():
            return "its certificate is not valid"
    return error.strerror or str(error) or type(error).__name__


def is_literal(host: str) -> bool:
    """Whether a host is an IP address and not a name."""
    try:
        ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def _resolve(host: str, port: int) -> list[AddressInfo]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


@dataclass(frozen=True, slots=True)
class HostRules:
    """The rules of the operator. `allow_private` is for test networks, and for commands whose user
    has named the host. `only_encrypted` is for the cloud."""

    allow_private: bool = False
    only_encrypted: bool = False
    resolve: Resolve = _resolve

    def check_scheme(self, scheme: str) -> None:
        if self.only_encrypted and scheme not in ("https", "wss"):
            raise HostNotAllowed(f"expected https or wss, got {scheme}")

    def addresses(self, host: str, port: int) -> list[AddressInfo]:
        """The addresses of the host. Raises HostNotAllowed if any of them is private, and OSError
        if the name does not resolve."""
        found = self.resolve(host.strip("[]"), port)
        if not found:
            raise OSError(f"{host} has no address")
        if not self.allow_private:
            for info in found:
                if not is_public(info[4][0]):
                    raise HostNotAllowed(f"{host} {PRIVATE}")
        return found

    def connect(self, host: str, port: int, timeout: float) -> socket.socket:
        """A connection to the first checked address that answers. The timeout is for all attempts
        together."""
        trouble: OSError | None = None
        ends = time.monotonic() + timeout
        for family, kind, protocol, _, address in self.addresses(host, port):
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(max(ends - time.monotonic(), 0.001))
                connection.connect(address)
            except OSError as error:
                connection.close()
                trouble = error
                continue
            connection.settimeout(timeout)
            return connection
        assert trouble is not None
        raise trouble


# For commands: the user has named the hosts.
ANYWHERE = HostRules(allow_private=True)
