"""HTTP as no client library writes it, on plain sockets: each request is answered, never by a 5xx,
nothing is logged, and no second request hides in a first."""

import socket
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.raw_sockets import exchange
from tests.e2e.relay_process import RelayProcess

HOST = b"Host: 127.0.0.1\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def request(line: bytes, headers: bytes = b"", body: bytes = b"") -> bytes:
    return line + b" HTTP/1.1\r\n" + HOST + headers + b"\r\n" + body


@pytest.fixture(autouse=True)
def _others_are_served(relay: RelayProcess) -> Iterator[None]:
    yield
    assert exchange(relay.port, request(b"GET /healthz")).status == 200


@pytest.mark.parametrize(
    ("octets", "status"),
    [
        (bytes(range(256)) * 4, 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: x\n\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 200),
        (request(b"GET /", b"Host: b\r\n"), 400),
        (request(b"GET /", b"X : a\r\n"), 400),
        (request(b"GET /", b"X: a\r\n b\r\n"), 400),
        (request(b"GET /", b"X: a\rb\r\n"), 400),
        (request(b"GET /", b"X: " + b"a" * 20_000 + b"\r\n"), 400),
        (request(b"GET /", b"".join(b"X%d: 1\r\n" % each for each in range(5000))), 400),
        (request(b"GET /" + b"a" * 20_000), 400),
        (request(b"GET /" + b"a" * 8000), 404),
        (request(b"GET /\0"), 400),
        (request(b"GET /%zz%00%ff"), 404),
        (request(b"GET /purse/%00%ff"), 404),
        (request(b"GET /../../etc/passwd"), 404),
        (request(b"GET /%2e%2e/%2e%2e/etc/passwd"), 404),
        (request(b"OPTIONS *"), 404),
        (request(b"TRACE /"), 405),
        (request(b"BREW /"), 400),
        (request(b"GET /", UPGRADE + b"Sec-WebSocket-Key: \xff\xe9\r\n"), 400),
        (request(b"GET /", KEY + UPGRADE.replace(b"13", b"\xff")), 400),
        (request(b"POST /ilp", b"Content-Length: 4\r\n" + CHUNKED, b"0\r\n\r\nGET"), 400),
        (request(b"POST /ilp", b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"), 400),
        (request(b"POST /ilp", b"Content-Length: 4\r\nContent-Length: 5\r\n", b"abcde"), 400),
        (request(b"POST /ilp", b"Content-Length: -1\r\n"), 400),
        (request(b"POST /ilp", b"Content-Length: +4\r\n", b"abcd"), 400),
        (request(b"POST /ilp", b"Content-Length: 4 4\r\n", b"abcd"), 400),
        (request(b"POST /v1/events", b"Content-Length: " + b"9" * 20 + b"\r\n"), 400),
        (request(b"POST /v1/events", CHUNKED, b"zz\r\n"), 400),
        (request(b"POST /v1/events", CHUNKED, b"2\r\n{}\r\n0\r\n\r\n"), 400),
        (
            request(b"POST /v1/events", b"Content-Encoding: gzip\r\nContent-Length: 2\r\n", b"{}"),
            400,
        ),
        (request(b"GET /", b"Upgrade: h2c\r\nConnection: Upgrade\r\n"), 200),
        (request(b"GET /", UPGRADE + KEY), 101),
        (request(b"GET /any/path?x=%00", UPGRADE + KEY), 101),
        (request(b"GET /", UPGRADE), 400),
        (request(b"GET /", UPGRADE + b"Sec-WebSocket-Key: x\r\n"), 400),
        (request(b"GET /", UPGRADE.replace(b"13", b"99") + KEY), 400),
    ],
    ids=lambda value: repr(value[:60]) if isinstance(value, bytes) else str(value),
)
def test_a_request_of_any_kind(relay: RelayProcess, octets: bytes, status: int) -> None:
    assert exchange(relay.port, octets).status == status


def test_a_body_that_waits_for_leave(relay: RelayProcess) -> None:
    head = request(b"POST /v1/events", b"Content-Length: 2\r\nExpect: 100-continue\r\n")
    with socket.create_connection(("127.0.0.1", relay.port), timeout=20) as line:
        line.sendall(head)
        assert line.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(b"{}")
        assert line.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_bodies_that_never_come_are_not_waited_for(
    start_relay: Callable[..., RelayProcess],
) -> None:
    relay = start_relay(request_seconds=1)
    for path in (b"/ilp", b"/v1/events"):
        octets = request(b"POST " + path, b"Content-Length: 1000\r\n", b"abc")
        assert exchange(relay.port, octets).status == 408
    assert exchange(relay.port, b"GET / HTTP/1.1\r\nHost: x\r\n").status == 0


DEEP = b"[" * 60_000
BODIES = [
    b"", b"null", b"[]", b"1", b'"x"', b"{", b"\xff\xfe", DEEP, b'{"a":' * 20_000,
    b'{"kind":NaN,"size":1}', b'{"kind":1e400,"size":1}', b'{"kind":1,"size":1.5}',
    b'{"kind":true,"size":1}', b'{"kind":18446744073709551616,"size":1}', b'{"kind":1,"size":-1}',
    b'{"event":"\\ud800"}', b'{"event":{"event_id":[]}}', b'{"event_id":{}}', b'{"purse":1}',
    b'{"purse":"npub1x","amount":"1"}', b'{"subscription":{"filters":[{}],"model":{}}}',
    b'{"subscription":{"filters":[{}],"ttl":1e9}}', b'{"filters":{"a":1}}', b'{"method":"x"}',
]  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["/", "/v1/quotes", "/v1/events", "/v1/subscriptions", "/v1/operator",
     "/accounts/x/settlements", f"/v1/purses/{'a' * 64}/credits", "/v1/purses/zz/credits"],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["", "Bearer x", "Nostr e30=", "Nostr !", "Basic eDp5"])
def test_a_body_of_any_kind(relay: RelayProcess, path: str, scheme: str) -> None:
    for body in BODIES:
        headers = (
            b"Content-Type: application/nostr+json+rpc\r\nAuthorization: %s\r\n" % scheme.encode()
        )
        headers += b"Content-Length: %d\r\n" % len(body)
        answer = exchange(relay.port, request(b"POST " + path.encode(), headers, body))
        assert 400 <= answer.status < 500, (body[:60], answer)
