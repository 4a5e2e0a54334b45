"""Requests that we send: only to a peer's registered place, and what comes back is not trusted."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from farthing.aws.outbound import HttpOutbound
from farthing.ports.hosts import ANYWHERE, HostRules
from farthing.ports.outbound import (
    CallbackAttempts,
    NoOutbound,
    NotRegistered,
    OutboundFailed,
    OutboundTimeout,
    check_registered,
)
from tests.relay.world import Clock

DROPS = 40  # two seconds of them
ENDPOINT = "https://peer.example/ilp"


@pytest.mark.parametrize(
    "url",
    [
        "https://peer.example/ilp",
        "https://peer.example/anywhere?x=y",
        "https://peer.example",
        "https://PEER.example/ilp",
        "HTTPS://peer.example/ilp",
        "https://peer.example:443/ilp",
        "https://peer.example?@evil.example",
        "https://peer.example#@evil.example",
        "https://peer.example/@evil.example",
    ],
)
def test_places_that_are_the_peers_own(url: str) -> None:
    check_registered(url, ENDPOINT)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/ilp",
        "peer.example/ilp",
        "//peer.example/ilp",
        "http://peer.example/ilp",
        "ftp://peer.example/ilp",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://evil.example/ilp",
        "https://peer.example.evil.example/",
        "https://evil.example/peer.example",
        "https://evil-peer.example/",
        "https://sub.peer.example/",
        "https://peer.example./",
        "https://peer.example:8443/",
        "https://peer.example:80/",
        "https://peer.example:0/",
        "https://peer.example:99999/",
        "https://peer.example:x/",
        "https://user@peer.example/",
        "https://@peer.example/",
        "https://user:password@peer.example/",
        "https://peer.example@evil.example/",
        "https://peer.example:443@evil.example/",
        "https://evil.example\\@peer.example/",
        "https://peer.example\\.evil.example/",
        "https://peer.example\\/evil",
        "https://peer.example\t.evil.example/",
        "https://peer.example\n/",
        "https://peer.example /",
        " https://peer.example/",
        "https://peer.example%2eevil.example/",
        "https://peer\u3002example/",
        "https://\uff50eer.example/",
        "https://127.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[::1",
        "https://]",
        "https://",
        "https:peer.example",
    ],
)
def test_a_url_elsewhere_is_not_registered(url: str) -> None:
    with pytest.raises(NotRegistered):
        check_registered(url, ENDPOINT)


@pytest.mark.parametrize("endpoint", ["", "peer.example/ilp", "ftp://peer.example", "https://["])
@pytest.mark.parametrize("url", ["", "169.254.169.254/latest", "ftp://peer.example", "https://["])
def test_without_a_proper_endpoint_there_is_no_place(url: str, endpoint: str) -> None:
    with pytest.raises(NotRegistered):
        check_registered(url, endpoint)


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("http://[::1]:8080/x", True),
        ("http://[::1]:8081/x", False),
        ("http://[::2]:8080/x", False),
        ("http://127.0.0.1:8080/x", False),
        ("http://user@[::1]:8080/x", False),
    ],
)
def test_a_registered_address_of_version_6_is_compared_with_its_port(url: str, fine: bool) -> None:
    if fine:
        check_registered(url, "http://[::1]:8080/ilp")
    else:
        with pytest.raises(NotRegistered):
            check_registered(url, "http://[::1]:8080/ilp")


# By HTTP


class Peer(BaseHTTPRequestHandler):
    """Answers by what the path says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))  # type: ignore[attr-defined]
        match self.path:
            case "/redirect":
                self.answer(307, b"", Location="/elsewhere")
            case "/large":
                self.answer(200, bytes(1_000_000))
            case "/nothing":
                self.close_connection = True
            case "/late":
                self.server.late.wait(10)  # type: ignore[attr-defined]
                self.answer(200, b"late")
            case "/drip":
                self.send_response(200)
                self.send_header("Content-Length", str(DROPS))
                self.end_headers()
                self.drip(bytes(DROPS))
            case "/drip-headers":
                self.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            case "/callback":
                self.answer(next(self.server.statuses), b"")  # type: ignore[attr-defined]
            case _:
                self.answer(200, b"echo " + body)

    def drip(self, octets: bytes) -> None:
        """A byte at a time, each well within any timeout, until nobody listens any more."""
        try:
            for number in range(len(octets)):
                self.wfile.write(octets[number : number + 1])
                self.wfile.flush()
                self.server.stopped.wait(0.05)  # type: ignore[attr-defined]
            self.server.drained = True  # type: ignore[attr-defined]
        except OSError:
            pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class PeerServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Peer)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.late = threading.Event()
        self.stopped = threading.Event()
        self.drained = False
        self.statuses = iter(())
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        pass  # clients of these tests leave early


@pytest.fixture
def peer() -> Iterator[PeerServer]:
    with PeerServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.late.set()
        server.stopped.set()
        server.shutdown()
        thread.join()


def test_a_request_and_its_answer(peer: PeerServer) -> None:
    outbound = HttpOutbound(ANYWHERE)
    assert outbound.post(f"{peer.url}/x", {"Request-Id": "r"}, b"hello", 5) == (200, b"echo hello")
    ((path, headers, _),) = peer.requests
    assert (path, headers["Request-Id"]) == ("/x", "r")


@pytest.mark.parametrize("path", ["/drip", "/drip-headers"])
@pytest.mark.parametrize("kept", [False, True])
def test_the_time_is_for_the_whole_answer(peer: PeerServer, path: str, kept: bool) -> None:
    """Also on a connection that is kept from an earlier request."""
    outbound = HttpOutbound(ANYWHERE)
    if kept:
        outbound.post(f"{peer.url}/echo", {}, b"", 10)
    with pytest.raises(OutboundTimeout):
        outbound.post(f"{peer.url}{path}", {}, b"", 0.3)
    assert not peer.drained
    assert outbound.post(f"{peer.url}/echo", {}, b"x", 10) == (200, b"echo x")


@pytest.mark.parametrize("seconds", [0, -1.5])
def test_without_time_nothing_is_sent(peer: PeerServer, seconds: float) -> None:
    with pytest.raises(OutboundTimeout):
        HttpOutbound(ANYWHERE).post(f"{peer.url}/echo", {}, b"", seconds)
    assert peer.requests == []


def test_redirects_are_not_followed(peer: PeerServer) -> None:
    assert HttpOutbound(ANYWHERE).post(f"{peer.url}/redirect", {}, b"x", 5).status == 307
    assert [path for path, _, _ in peer.requests] == ["/redirect"]


def test_an_endless_answer_is_not_read_and_spoils_nothing(peer: PeerServer) -> None:
    outbound = HttpOutbound(ANYWHERE)
    assert len(outbound.post(f"{peer.url}/large", {}, b"x", 5).body) <= 64 * 1024
    assert outbound.post(f"{peer.url}/x", {}, b"next", 5) == (200, b"echo next")


def test_no_answer_is_a_failure_and_is_not_tried_again(peer: PeerServer) -> None:
    outbound = HttpOutbound(ANYWHERE)
    with pytest.raises(OutboundFailed):
        outbound.post(f"{peer.url}/nothing", {}, b"x", 5)
    with pytest.raises(OutboundFailed):
        outbound.post(f"{peer.url}/late", {}, b"x", 0.2)
    with pytest.raises(OutboundFailed):
        outbound.post("http://127.0.0.1:1/", {}, b"x", 5)
    assert [path for path, _, _ in peer.requests] == ["/nothing", "/late"]


# Callbacks


@pytest.mark.parametrize(
    ("statuses", "taken"),
    [
        ([200], True),
        ([202], True),
        ([404, 202], True),  # the peer has not seen our 202 yet
        ([409, 404, 200], True),
        ([503, 500, 429, 404, 200], True),
        ([404] * 5, False),
        ([400], False),
        ([401], False),
        ([307], False),
    ],
)
def test_a_callback_is_tried_again_while_it_may_be_taken(
    peer: PeerServer, statuses: list[int], taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []
    peer.statuses = iter(statuses)
    HttpOutbound(ANYWHERE, waits.append).call_back(
        f"{peer.url}/callback", {"Request-Id": "r"}, b"reply", 30
    )
    assert [body for _, _, body in peer.requests] == [b"reply"] * len(statuses)
    assert waits == sorted(waits) and sum(waits) < 10
    assert ("did not accept" in caplog.text) is not taken


def test_a_callback_to_nobody_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    waits: list[float] = []
    HttpOutbound(ANYWHERE, waits.append).call_back("http://127.0.0.1:1/", {}, b"reply", 30)
    assert len(waits) == 5
    assert "did not accept" in caplog.text


def test_attempts_end_with_their_time() -> None:
    clock, seen = Clock(), []
    for wait, left in CallbackAttempts(1.0, clock):
        seen.append((wait, round(left, 3)))
        clock.now += wait + 0.2
    assert seen == [(0.0, 1.0), (0.1, 0.7), (0.3, 0.2)]


def test_an_agent_without_a_way_out() -> None:
    with pytest.raises(OutboundFailed):
        NoOutbound().post("https://a.example", {}, b"", 1)


def test_nothing_is_sent_to_a_private_host(peer: PeerServer) -> None:
    with pytest.raises(OutboundFailed, match="private address"):
        HttpOutbound().post(f"{peer.url}/ilp", {}, b"x", 5)

    assert peer.requests == []


def test_only_encrypted_requests_leave_where_that_is_the_rule() -> None:
    outbound = HttpOutbound(HostRules(allow_private=True, only_encrypted=True))

    with pytest.raises(OutboundFailed, match="expected https or wss, got http"):
        outbound.post("http://relay.example/ilp", {}, b"x", 5)
