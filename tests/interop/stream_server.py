"""A STREAM receiver behind ILP over HTTP, and its SPSP answer, made of the pure modules alone."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_bytes
from threading import Lock, Thread

from farthing.ilp.packet import Code, Reject, decode_prepare, encode
from farthing.ilp.purse import NotAPurse, parse_purse_address
from farthing.ilp.spsp import MEDIA_TYPE, StreamConnection, answer, connect, connection_secret
from farthing.ilp.stream_receiver import Asset, Limits, StreamPayment, receive
from farthing.nostr.events import public_key_of

ADDRESS = "g.farthing.test"
TOKEN = "secret-of-the-account"
ASSET = Asset("USD", 9)
NO_LIMITS = Limits()


class StreamServer:
    def __init__(self, limits: Limits, arriving: Callable[[int], int]) -> None:
        self.secret = token_bytes(32)
        self.key = bytes.fromhex(public_key_of(token_bytes(32)))
        self.limits = limits
        self.arriving = arriving  # how much arrives of an amount, as if connectors lay between
        self.booked: list[int] = []
        self.lock = Lock()
        self.url = ""

    def connection(self) -> StreamConnection:
        return connect(self.secret, ADDRESS, self.key, token_bytes(16))

    def answer(self, octets: bytes) -> bytes:
        prepare = decode_prepare(octets)
        try:
            purse = parse_purse_address(ADDRESS, prepare.destination)
        except NotAPurse as error:
            return encode(Reject(Code.F02_UNREACHABLE, ADDRESS, str(error)))
        assert purse.key == self.key and purse.token is not None
        arrived = replace(prepare, amount=self.arriving(prepare.amount))
        decision = receive(
            arrived,
            secret=connection_secret(self.secret, purse.key, purse.token),
            address=ADDRESS,
            asset=ASSET,
            limits=self.limits,
        )
        if isinstance(decision, StreamPayment):
            with self.lock:
                self.booked.append(decision.amount)
            return encode(decision.fulfill())
        return encode(decision)


@contextmanager
def stream_server(
    limits: Limits = NO_LIMITS, arriving: Callable[[int], int] = lambda amount: amount
) -> Iterator[StreamServer]:
    server = StreamServer(limits, arriving)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            assert MEDIA_TYPE in self.headers["Accept"]
            self.reply(json.dumps(answer(server.connection())).encode(), MEDIA_TYPE)

        def do_POST(self) -> None:
            assert self.headers["Authorization"] == f"Bearer {TOKEN}"
            body = server.answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(body, "application/octet-stream")

        def reply(self, body: bytes, media_type: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    server.url = f"http://127.0.0.1:{listener.server_port}/ilp"
    thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
