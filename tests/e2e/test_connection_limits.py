"""Who comes in: limits on connections, on slow requests, and on whose name we answer to."""

import asyncio
import socket
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict

from farthing.settings import Settings
from infra.local.server.client_address import Proxies, limit_key
from infra.local.server.connection_limits import ConnectionLimits
from infra.local.server.http_server import HttpServer, own_name
from tests.e2e.authors import Author
from tests.e2e.client import WAIT_SECONDS, Background, RawClient
from tests.e2e.conftest import OPEN
from tests.e2e.raw_sockets import WebSocket
from tests.e2e.relay_process import RelayProcess


class Transport:
    def __init__(self, address: str) -> None:
        self.address = address
        self.sent = b""
        self.is_open = True

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self.address, 40000

    def write(self, octets: bytes) -> None:
        self.sent += octets

    def close(self) -> None:
        self.is_open = False


def knock(limits: ConnectionLimits, *addresses: str) -> list[Any]:
    """Connections from these addresses."""
    transports: list[Any] = [Transport(address) for address in addresses]
    for transport in transports:
        assert limits.enter(transport) is transport.is_open
    return transports


class TestConnections:
    def test_so_many_from_an_address(self) -> None:
        limits = ConnectionLimits(Settings(max_connections_per_address=2))
        visits = knock(limits, "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2")

        assert [transport.is_open for transport in visits] == [True, True, False, True]
        assert visits[2].sent.startswith(b"HTTP/1.1 503 ")
        limits.leave(visits[2])  # who was turned away leaves no room behind
        assert not knock(limits, "10.0.0.1")[0].is_open
        limits.leave(visits[0])
        assert knock(limits, "10.0.0.1")[0].is_open

    def test_this_machine_may_speak_for_many(self) -> None:
        limits = ConnectionLimits(Settings(max_connections_per_address=1))
        visits = knock(limits, "127.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.1")
        assert all(transport.is_open for transport in visits)

    @pytest.mark.parametrize(
        ("address", "other", "same"),
        [
            ("10.0.0.1", "10.0.0.2", False),
            ("::ffff:10.0.0.1", "10.0.0.1", True),
            ("2001:db8::1", "2001:db8::ffff", True),  # one network
            ("2001:db8::1", "2001:db8:0:1::1", False),
            ("fe80::1%eth0", "fe80::2%eth0", True),
        ],
    )
    def test_addresses_of_one_network_count_as_one_client(
        self, address: str, other: str, same: bool
    ) -> None:
        assert (limit_key(address) == limit_key(other)) is same

    def test_connections_above_the_limit_get_503(
        self, start_relay, connect, background: Background
    ) -> None:
        relay = start_relay(**OPEN, max_connections=3)
        clients = [connect(relay) for _ in range(3)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            connect(relay)
        assert refused.value.status == 503
        assert [client.count({"kinds": [1]}) for client in clients] == [{"count": 0}] * 3

        clients[0].close()
        connect_when_there_is_room(background, relay).close()


class TestRequests:
    def test_so_many_of_an_address(self) -> None:
        now = [1000.0]
        limits = ConnectionLimits(Settings(requests_per_second=1, request_burst=5), lambda: now[0])
        one, other, here = map(limit_key, ("10.0.0.1", "10.0.0.2", "127.0.0.1"))
        assert [limits.is_too_fast(one) for _ in range(6)] == [*[False] * 5, True]
        assert not limits.is_too_fast(other)
        assert not any(limits.is_too_fast(here) for _ in range(9))
        now[0] += 3
        assert [limits.is_too_fast(one) for _ in range(3)] == [False, False, True]

    @pytest.mark.parametrize(("path", "status"), [("/", 429), ("/ilp", 200)])
    def test_packets_are_counted_by_their_peer(
        self, background: Background, path: str, status: int
    ) -> None:
        limits = ConnectionLimits(Settings(requests_per_second=1, request_burst=0))
        (visit,) = knock(limits, "10.0.0.1")
        request = a_request(visit, path)

        async def ask() -> web.StreamResponse:
            server = HttpServer(lambda _: asyncio.sleep(0, web.Response()), Settings(), limits)
            response: web.StreamResponse = await server.request_handler(request)
            return response

        response = background.run(ask())
        assert response.status == status
        assert ("Retry-After" in response.headers) is (status == 429)


class FakeRequest(dict[str, Any]):
    """As much of a request as the server looks at."""

    def __init__(self, transport: Any, path: str, headers: dict[str, str]) -> None:
        super().__init__()
        self.transport = transport
        self.path = path
        self.headers = CIMultiDict(headers)


def a_request(transport: Any, path: str, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FakeRequest(transport, path, named)


PROXY = "10.9.9.9"


class TestProxies:
    @pytest.mark.parametrize(
        ("headers", "client"),
        [
            ({}, PROXY),
            ({"X-Forwarded-For": "1.2.3.4"}, "1.2.3.4"),
            ({"X-Forwarded-For": "6.6.6.6, 1.2.3.4"}, "1.2.3.4"),  # the left is anybody's word
            ({"X-Forwarded-For": "6.6.6.6, 1.2.3.4, 10.9.9.8"}, "1.2.3.4"),  # two proxies
            ({"X-Forwarded-For": "1.2.3.4:5678"}, "1.2.3.4"),
            ({"X-Forwarded-For": "[2001:db8::1]:5678"}, "2001:db8::1"),
            ({"X-Forwarded-For": "10.9.9.7"}, "10.9.9.7"),  # none but proxies
            ({"X-Forwarded-For": "1.2.3.4, _hidden"}, "unknown"),
            ({"X-Forwarded-For": ""}, PROXY),
            ({"X-Forwarded-For": "," * 9999}, "unknown"),
            ({"Forwarded": "for=1.2.3.4"}, "1.2.3.4"),
            ({"Forwarded": 'for=6.6.6.6, for="[2001:db8::1]:80";proto=https'}, "2001:db8::1"),
            ({"Forwarded": "by=6.6.6.6;For=1.2.3.4"}, "1.2.3.4"),
            ({"Forwarded": "for=_hidden"}, "unknown"),
            ({"Forwarded": "proto=https"}, PROXY),
            ({"Forwarded": "for=1.2.3.4", "X-Forwarded-For": "1.2.3.4"}, "1.2.3.4"),
            (
                {"Forwarded": "for=6.6.6.6", "X-Forwarded-For": "1.2.3.4"},
                "unknown",
            ),  # one is forged
        ],
    )
    def test_a_trusted_one_names_the_client(self, headers: dict[str, str], client: str) -> None:
        proxies = Proxies(["10.9.9.0/24"])
        assert proxies.client(PROXY, CIMultiDict(headers)) == client

    def test_clients_behind_forged_headers_share_one_limit(self) -> None:
        """A forged header on the way through a proxy on this machine must not lift the limits."""
        forged = CIMultiDict({"Forwarded": "for=127.0.0.1", "X-Forwarded-For": "1.2.3.4"})
        client = Proxies(["127.0.0.1"]).client("127.0.0.1", forged)
        assert limit_key(client) == "unknown"

    def test_headers_of_an_untrusted_host_name_no_client(self) -> None:
        headers = CIMultiDict({"X-Forwarded-For": "1.2.3.4"})
        assert Proxies(["10.9.9.0/24"]).client("10.9.8.1", headers) == "10.9.8.1"
        assert Proxies([]).client("127.0.0.1", headers) == "127.0.0.1"

    def test_requests_behind_one_are_counted_by_client(self, background: Background) -> None:
        settings = Settings(
            requests_per_second=1, request_burst=1, trusted_proxies=(PROXY,),
            max_connections_per_address=1,
        )  # fmt: skip
        limits = ConnectionLimits(settings, lambda: 0)
        visits = knock(limits, PROXY, PROXY)  # a proxy speaks for many
        assert all(visit.is_open for visit in visits)

        async def ask(client: str) -> int:
            server = HttpServer(lambda _: asyncio.sleep(0, web.Response()), settings, limits)
            request = a_request(visits[0], "/", X_Forwarded_For=client)
            return (await server.request_handler(request)).status

        asked = [background.run(ask(client)) for client in ("1.1.1.1", "1.1.1.1", "2.2.2.2")]
        assert asked == [200, 429, 200]

    def test_sockets_behind_one_are_counted_by_client(
        self, start_relay, background: Background
    ) -> None:
        relay = start_relay(**OPEN, trusted_proxies="127.0.0.1", max_connections_per_address=1)

        def connect(client: str) -> RawClient:
            return RawClient(background, relay.url, headers={"X-Forwarded-For": client})

        first, other = connect("1.1.1.1"), connect("2.2.2.2")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            connect("1.1.1.1")
        assert refused.value.status == 503
        first.close()
        other.close()


def test_messages_of_an_address_are_counted_over_its_connections(
    start_relay, background: Background
) -> None:
    """A client with many connections has no more than its share."""
    relay = start_relay(
        **OPEN, trusted_proxies="127.0.0.1", address_messages_per_second=1, address_message_burst=20
    )

    def connect(client: str) -> RawClient:
        return RawClient(background, relay.url, headers={"X-Forwarded-For": client})

    many, other = [connect("1.1.1.1") for _ in range(3)], connect("2.2.2.2")
    refused = 0
    for number in range(30):
        client = many[number % 3]
        client.send("REQ", "r", {"kinds": [1], "limit": 1})
        answer = client.receive()
        while answer[0] == "AUTH":
            answer = client.receive()
        if answer[0] == "CLOSED":
            assert answer[1] == "r"
            assert answer[2].startswith("rate-limited: ")
            refused += 1
        else:
            assert answer == ["EOSE", "r"]
    assert 0 < refused <= 10
    assert other.count({"kinds": [1]}) == {"count": 0}
    for client in (*many, other):
        client.close()


def connect_when_there_is_room(background: Background, relay: RelayProcess) -> RawClient:
    while True:
        try:
            return RawClient(background, relay.url)
        except aiohttp.WSServerHandshakeError:
            continue


class TestEndedConnections:
    ROUND, ROUNDS, MOST_GROWTH_KB = 500, 6, 24_000

    def test_they_leave_no_memory_behind(self, start_relay) -> None:
        relay, sizes = start_relay("ended", **OPEN), []
        for _ in range(self.ROUNDS):
            with ExitStack() as open_ones:
                for _ in range(self.ROUND):
                    client = open_ones.enter_context(WebSocket(relay.port))
                    client.send("REQ", "live", {"limit": 1})
            sizes.append(relay.memory_kb())

        # 2,500 connections later; each needs some 30 KB.
        assert sizes[-1] - sizes[0] < self.MOST_GROWTH_KB


class TestSlowRequests:
    @pytest.mark.parametrize(
        ("sent", "answer"),
        [
            (b"", b""),
            (b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow:", b""),
            (b"POST /v1/quotes HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", b"408"),
            (b"POST /ilp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", b"408"),
        ],
        ids=["nothing", "half a head", "half a body", "half a packet"],
    )
    def test_a_request_that_does_not_arrive_in_time_is_ended(
        self, start_relay, sent: bytes, answer: bytes
    ) -> None:
        got = talk(start_relay(request_seconds=1), sent)
        assert got[9:12] == answer

    def test_a_client_that_leaves_in_the_middle_of_one(self, start_relay, connect) -> None:
        relay = start_relay(**OPEN)
        place = urlsplit(relay.url)
        head = b"POST /v1/quotes HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
        for sent in (head, head[:30], b""):
            with socket.create_connection((place.hostname, place.port)) as line:
                line.sendall(sent)
        assert connect(relay).count({"kinds": [1]}) == {"count": 0}

    def test_a_body_in_no_encoding(self, start_relay) -> None:
        head = b"POST /v1/quotes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        got = talk(
            start_relay(request_seconds=1),
            head + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        )
        assert got[9:12] == b"400"


def talk(relay: RelayProcess, sent: bytes) -> bytes:
    """Everything that comes until the server hangs up."""
    place = urlsplit(relay.url)
    with socket.create_connection((place.hostname, place.port)) as line:
        line.settimeout(WAIT_SECONDS)
        line.sendall(sent)
        return b"".join(iter(lambda: line.recv(65536), b""))


class TestWhoWeAre:
    @pytest.mark.parametrize(
        ("host", "reached", "name"),
        [
            ("127.0.0.1:7777", "127.0.0.1", "127.0.0.1"),
            ("localhost:7777", "127.0.0.1", "localhost"),
            ("[::1]:7777", "::1", "::1"),
            ("192.168.1.5:7777", "192.168.1.5", "192.168.1.5"),
            ("elsewhere.example", "192.168.1.5", "0.0.0.0"),
            ("[::", "192.168.1.5", "0.0.0.0"),
            ("", "192.168.1.5", "0.0.0.0"),
        ],
    )
    def test_a_name_that_is_ours(self, host: str, reached: str, name: str) -> None:
        request: Any = SimpleNamespace(host=host, get_extra_info=lambda _: (reached, 7777))
        assert own_name(request, Settings(host="0.0.0.0")) == name

    @pytest.mark.parametrize(
        ("host", "accepted"), [("127.0.0.1", True), ("localhost", True), ("evil.example", False)]
    )
    def test_what_was_signed_for_another_relay_is_not_taken(
        self, relay: RelayProcess, background: Background, host: str, accepted: bool
    ) -> None:
        """A relay hands our challenge on to a client of its own, and the answer back to us."""
        victim = Author()

        async def attack() -> Any:
            async with (
                aiohttp.ClientSession(headers={"Host": host}) as session,
                session.ws_connect(relay.url) as line,
            ):
                await line.send_json(["COUNT", "x", {"ids": []}])
                frames = [await line.receive_json() for _ in range(2)]
                challenge = next(frame[1] for frame in frames if frame[0] == "AUTH")
                tags = [["relay", f"wss://{host}"], ["challenge", challenge]]
                await line.send_json(["AUTH", victim.event("", kind=22242, tags=tags)])
                return await line.receive_json()

        assert background.run(attack())[2] is accepted
