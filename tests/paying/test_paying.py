"""Paying a running relay by pay.js and by pay.py: what is paid is stored, and nothing else is."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from websockets.sync.client import connect

from docs.examples import pay as pay_py
from farthing.ilp.packet import Fulfill, Reject, encode
from tests.e2e.authors import Author
from tests.e2e.paying import as_event, quote_for, token_of
from tests.e2e.relay_process import ROOT, RelayProcess, environment
from tests.paying.pay_js import PayJs, node

# Pays, and gives back what `pay` returned; or `error` with the message.
Payer = Callable[..., dict[str, Any]]
MUCH = 10**9


def by_javascript(pay_js: PayJs) -> Payer:
    def pay(url: str, event: dict[str, Any], *, token: str, most: int = MUCH,
            secret: str = "", connector: str | None = None) -> dict[str, Any]:  # fmt: skip
        given = {} if connector is None else {"connector": connector}
        return pay_js.ask("pay", relay=url, event=event, token=token, maxAmount=most,
                          secret=secret, **given)  # fmt: skip

    return pay


def by_python(_: PayJs) -> Payer:
    def pay(url: str, event: dict[str, Any], *, token: str, most: int = MUCH,
            secret: str = "", connector: str = "") -> dict[str, Any]:  # fmt: skip
        try:
            receipt = pay_py.pay(
                url, as_event(event), token=token, max_amount=most, connector=connector,
                author_secret=bytes.fromhex(secret) if secret else None,
            )  # fmt: skip
        except (pay_py.PaymentFailed, ValueError) as error:
            reject = getattr(error, "reject", None)
            return {"error": type(error).__name__, "message": str(error),
                    **({} if reject is None else {"code": reject.code})}  # fmt: skip
        return {"eventId": receipt.event_id, "amount": str(receipt.amount),
                "scheme": receipt.scheme, "fulfillment": receipt.fulfillment}  # fmt: skip

    return pay


@pytest.fixture(params=[by_javascript, by_python])
def payer(request: pytest.FixtureRequest, pay_js: PayJs) -> Payer:
    made: Payer = request.param(pay_js)
    return made


def is_stored(relay: RelayProcess, event: dict[str, Any]) -> bool:
    with connect(relay.url) as socket:
        socket.send(json.dumps(["REQ", "s", {"ids": [event["id"]]}]))
        verbs = iter(lambda: json.loads(socket.recv(20))[0], "EOSE")
        return "EVENT" in list(verbs)


@pytest.mark.parametrize("scheme", ["author", "quote"])
def test_a_paid_event_is_stored(
    relay: RelayProcess, payer: Payer, author: Author, scheme: str
) -> None:
    event = author.event('née, "x": [1]\n\t\x01 \U0001f600', tags=[["t", "05"], ["e", ""], []])
    assert not is_stored(relay, event)
    secret = author.secret if scheme == "author" else ""

    paid = payer(relay.url, event, token=token_of(relay), secret=secret)

    assert (paid["eventId"], paid["scheme"]) == (event["id"], scheme)
    assert paid["amount"] == quote_for(relay, event)["price"]
    assert is_stored(relay, event)


def test_more_than_was_allowed_is_not_paid(
    relay: RelayProcess, payer: Payer, author: Author
) -> None:
    event = author.event()
    price = int(quote_for(relay, event)["price"])

    refused = payer(relay.url, event, token=token_of(relay), most=price - 1)

    assert str(price) in refused["message"]
    assert not is_stored(relay, event)
    assert "error" not in payer(relay.url, event, token=token_of(relay), most=price)


def test_a_reject_says_its_code(relay: RelayProcess, payer: Payer, author: Author) -> None:
    event = author.event()
    assert "error" not in payer(relay.url, event, token=token_of(relay))

    again = payer(relay.url, event, token=token_of(relay), secret=Author().secret)

    assert again["error"] == "PaymentRejected"
    assert again["code"] == "F05"


def test_a_wrong_token_is_told(relay: RelayProcess, payer: Payer, author: Author) -> None:
    refused = payer(relay.url, author.event(), token="0" * 64)
    assert refused["error"] == "PaymentFailed"
    assert "401" in refused["message"]


def test_an_event_with_a_wrong_signature_gets_no_quote(
    relay: RelayProcess, payer: Payer, author: Author
) -> None:
    forged = author.event() | {"sig": "0" * 128}
    assert "HTTP 400" in payer(relay.url, forged, token=token_of(relay))["message"]


def test_nobody_there_is_told(payer: Payer, author: Author) -> None:
    refused = payer("http://127.0.0.1:1", author.event(), token="t")
    assert "does not answer" in refused["message"]


# A relay and a connector that cannot be trusted


class Stranger:
    """Serves whatever a test wants, and keeps the requests."""

    def __init__(self) -> None:
        self.quote: dict[str, Any] = {}
        self.replies: list[bytes] = []
        self.tokens: list[str] = []
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/quotes":
                    body = json.dumps(stranger.quote).encode()
                else:
                    stranger.tokens.append(self.headers["Authorization"])
                    body = stranger.replies.pop(0)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def will_quote(self, event: dict[str, Any], **changes: Any) -> None:
        self.quote = {
            "event_id": event["id"], "price": "100", "destination": "g.agent.x",
            "endpoint": f"{self.url}/ilp", "pubkey": Author().pubkey, "condition": "00" * 32,
        } | changes  # fmt: skip


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    stranger = Stranger()
    yield stranger
    stranger.server.shutdown()
    stranger.server.server_close()


def test_a_fulfillment_that_is_not_the_conditions_is_no_payment(
    stranger: Stranger, payer: Payer, author: Author
) -> None:
    event = author.event()
    stranger.will_quote(event)
    stranger.replies = [encode(Fulfill(bytes(32)))]

    assert "does not hash" in payer(stranger.url, event, token="t")["message"]


def test_the_token_goes_to_no_host_that_the_relay_names(
    stranger: Stranger, payer: Payer, author: Author
) -> None:
    thief = Stranger()
    try:
        event = author.event()
        stranger.will_quote(event, endpoint=f"{thief.url}/ilp")

        assert "name a connector" in payer(stranger.url, event, token="secret")["message"]
        assert thief.tokens == stranger.tokens == []
    finally:
        thief.server.shutdown()
        thief.server.server_close()


def test_what_connectors_keep_is_added_up_to_the_limit(
    stranger: Stranger, payer: Payer, author: Author
) -> None:
    event = author.event()
    stranger.will_quote(event)
    short = encode(Reject("F04", "g.agent.x", "too little", b'{"price":"100","received":"90"}'))
    stranger.replies = [short] * 9

    assert "at most 105" in payer(stranger.url, event, token="t", most=105)["message"]
    assert len(stranger.tokens) == 1
    stranger.tokens.clear()
    assert payer(stranger.url, event, token="t")["code"] == "F04"
    assert len(stranger.tokens) == 4  # and not for ever


@pytest.mark.parametrize(
    "changes",
    [
        {"event_id": "0" * 64},
        {"price": "-5"},
        {"price": "1e3"},
        {"price": None},
        {"destination": "x"},
        {"condition": "00"},
        {"condition": None},
        {"endpoint": None},
        {"endpoint": "x"},
        {"pubkey": None},
    ],
    ids=str,
)
def test_a_quote_that_cannot_be_right_is_refused(
    stranger: Stranger, payer: Payer, author: Author, changes: dict[str, Any]
) -> None:
    event = author.event()
    stranger.will_quote(event, **changes)

    assert "error" in payer(stranger.url, event, token="t")
    assert not stranger.tokens


# The examples as commands


def run(command: list[str], given: dict[str, str], text: str = "") -> Any:
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | given, input=text, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("more", [[], ["--quote"]])
def test_the_python_example_runs(relay: RelayProcess, author: Author, more: list[str]) -> None:
    given = environment(relay.data, {}) | {
        "NOSTR_SECRET_KEY": author.secret, "FARTHING_TOKEN": token_of(relay),
    }  # fmt: skip
    command = [sys.executable, "docs/examples/pay.py", relay.url, "hi", "--max-amount", "10000"]
    receipt = run([*command, *more], given)
    assert receipt["scheme"] == ("quote" if more else "author")
    assert receipt["amount"] > 0


@pytest.mark.parametrize("scheme", ["author", "quote"])
def test_the_node_example_runs(relay: RelayProcess, author: Author, scheme: str) -> None:
    given = {"FARTHING_TOKEN": token_of(relay)}
    if scheme == "author":
        given["NOSTR_SECRET_KEY"] = author.secret
    event = author.event()
    command = [node() or "node", "docs/examples/pay.mjs", relay.url, "10000"]
    receipt = run(command, given, json.dumps(event))
    assert (receipt["eventId"], receipt["scheme"]) == (event["id"], scheme)
    assert is_stored(relay, event)
