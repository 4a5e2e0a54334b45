"""A settlement engine (RFC 0038) of a few lines: what it is asked to pay, it reports to the payee's
agent at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import urllib3


class Payee(NamedTuple):
    url: str  # its agent
    account: str  # what the payer is called there
    token: str


class SettlementEngine:
    def __init__(self) -> None:
        self.payees: dict[str, Payee] = {}
        self.keys: set[str] = set()

    def pay(self, account: str, key: str, quantity: bytes) -> int:
        """Paid once for each key, and reported under the same key as often as it is asked."""
        payee = self.payees.get(account)
        if payee is None:
            return 404
        self.keys.add(key)
        headers = {
            "Authorization": f"Bearer {payee.token}",
            "Idempotency-Key": key,
            "Content-Type": "application/json",
        }
        place = f"{payee.url}/accounts/{payee.account}/settlements"
        return urllib3.request("POST", place, body=quantity, headers=headers, retries=False).status


@contextmanager
def settlement_engine() -> Iterator[tuple[SettlementEngine, str]]:
    """The engine, and where it listens."""
    engine = SettlementEngine()

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            account = self.path.split("/")[2] if self.path.count("/") == 3 else ""
            self.send_response(engine.pay(account, self.headers["Idempotency-Key"], body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield engine, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
