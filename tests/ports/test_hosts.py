"""Which hosts the agent may connect to."""

import socket

import pytest

from farthing.ports.hosts import HostNotAllowed, HostRules, is_literal, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # where AWS answers with credentials
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "2002:7f00:1::",  # 6to4 of 127.0.0.1
        "64:ff9b::7f00:1",  # NAT64 of 127.0.0.1
        "ff02::1",
        "not an address",
    ],
)
def test_an_address_of_our_own_network_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


def resolving_to(*addresses: str) -> HostRules:
    def resolve(_host: str, port: int) -> list[tuple[object, object, int, str, tuple[str, int]]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    return HostRules(resolve=resolve)


def test_a_name_that_leads_to_loopback_is_refused() -> None:
    with pytest.raises(HostNotAllowed, match="FARTHING_ALLOW_PRIVATE_HOSTS"):
        resolving_to("127.0.0.1").addresses("relay.example", 443)


def test_a_name_with_one_private_address_among_public_ones_is_refused() -> None:
    with pytest.raises(HostNotAllowed):
        resolving_to("93.184.216.34", "10.0.0.1").addresses("relay.example", 443)


def test_a_connection_goes_to_the_address_that_was_checked() -> None:
    """A name that resolves anew for the connection could lead elsewhere by then."""
    asked = []

    def resolve(host: str, port: int) -> list[tuple[object, object, int, str, tuple[str, int]]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    with socket.create_server(("127.0.0.1", 0)) as server:
        rules = HostRules(allow_private=True, resolve=resolve)
        with rules.connect("nowhere.invalid", server.getsockname()[1], 5) as connection:
            assert connection.getpeername()[0] == "127.0.0.1"
    assert asked == ["nowhere.invalid"]


def test_nothing_is_connected_to_a_private_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        with pytest.raises(HostNotAllowed):
            HostRules().connect("127.0.0.1", server.getsockname()[1], 5)
        with pytest.raises(TimeoutError):
            server.accept()


def test_where_only_encryption_is_allowed_plain_http_is_refused() -> None:
    rules = HostRules(only_encrypted=True)

    rules.check_scheme("https")
    rules.check_scheme("wss")
    for scheme in ("http", "ws"):
        with pytest.raises(HostNotAllowed, match="expected https or wss"):
            rules.check_scheme(scheme)


def test_addresses_are_told_from_names() -> None:
    assert is_literal("127.0.0.1") and is_literal("[::1]") and is_literal("fe80::1%eth0")
    assert not is_literal("localhost") and not is_literal("1.2.3.example")
