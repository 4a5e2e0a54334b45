"""The commands around paying, as a user types them: post, quote, watch, peers, audit; prices that
change with a restart; and replies by callback to a peer's own server."""

import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from farthing.ilp.condition import condition_of
from farthing.ilp.packet import Fulfill, Reject, decode_reply
from farthing.store.ledger import Ledger
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Add, Table
from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.paying import (
    PER_BYTE,
    command,
    command_environment,
    free_port,
    information,
    pay,
    payment_for,
    post_packet,
    reply_of,
    table_of,
    terms_of,
)
from tests.e2e.relay_process import ROOT, RelayProcess


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("commands") / "data"
    relay = RelayProcess(data, port=free_port(), price_per_byte=PER_BYTE).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


# post, quote, watch


def test_post_pays_and_says_so(relay: RelayProcess, client: RawClient) -> None:
    done = command(relay, "post", "hello from the shell", "--tag", "t=shell", "--tag", "x=1,2")
    assert done.returncode == 0, done.stderr
    said = table_of(done.stdout)
    (event,) = client.ask({"#t": ["shell"]})
    assert event["id"] == said["event"]
    assert (event["content"], event["tags"]) == (
        "hello from the shell",
        [["t", "shell"], ["x", "1", "2"]],
    )
    price = re.match(r"(\d+) USD/1e9 \((\d+) bytes at 10\)", said["price"])
    assert price is not None
    assert int(price[1]) == 10 * int(price[2])
    assert said["paid"] == f"{price[1]} USD/1e9 to g.agent.{relay.pubkey}"
    receipt = next(each for each in receipts(relay) if each.purpose.mark == event["id"])
    assert condition_of(bytes.fromhex(said["fulfilment"])).hex() == receipt.condition
    assert receipt.amount == int(price[1])
    assert re.fullmatch(r"after \d+ ms", said["stored"])


def test_post_with_too_little_says_why_not(relay: RelayProcess) -> None:
    done = command(relay, "post", "cheap", "--amount", "1")
    assert done.returncode == 1
    assert table_of(done.stdout)["rejected"].startswith("F04 storing this event costs ")
    assert "paid" not in table_of(done.stdout)


def test_post_as_the_owner_and_from_stdin(relay: RelayProcess, client: RawClient) -> None:
    done = command(
        relay, "post", "-", "--owner", "--kind", "30023", "--tag", "d=x", input="long\ntext"
    )
    assert done.returncode == 0, done.stderr
    (event,) = client.ask({"kinds": [30023]})
    assert (event["pubkey"], event["content"]) == (relay.pubkey, "long\ntext")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--token", "wrong"], "HTTP 401"),
        (["--relay", "ws://127.0.0.1:1"], "refused"),
        (["--connector", "http://127.0.0.1:1/ilp"], ""),
        (["--relay", "http://127.0.0.1:PORT/metrics"], "without JSON"),
    ],
)
def test_post_that_cannot_be_done(relay: RelayProcess, arguments: list[str], reason: str) -> None:
    arguments = [each.replace("PORT", str(relay.port)) for each in arguments]
    done = command(relay, "post", "x", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("farthing: ")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_an_amount_that_no_packet_can_carry_is_refused_by_name(relay: RelayProcess) -> None:
    done = command(relay, "post", "x", "--amount", str(2**64))
    assert done.returncode == 2
    assert f"--amount: expected a whole number from 0 to {2**64 - 1}" in done.stderr


def test_an_event_that_no_packet_has_room_for(relay: RelayProcess) -> None:
    done = command(relay, "post", "-", input="x" * 40_000)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert done.stderr.startswith("farthing: ")


def test_quote_asks_without_publishing(relay: RelayProcess, client: RawClient) -> None:
    done = command(relay, "quote", "what would this cost", "--kind", "1")
    assert done.returncode == 0, done.stderr
    quote = json.loads(done.stdout)
    assert int(quote["price"]) == PER_BYTE * quote["size"]
    assert quote["destination"] == f"g.agent.{relay.pubkey}"
    assert quote["endpoint"] == terms_of(relay).endpoint
    assert client.ids({"ids": [quote["event_id"]]}) == []


def test_watch_prints_what_comes(relay: RelayProcess) -> None:
    author = Author()
    watcher = subprocess.Popen(
        [sys.executable, "-m", "infra.local", "watch", "--filter",
         json.dumps({"authors": [author.pubkey]})],
        cwd=ROOT, env=command_environment(relay), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    hung = threading.Timer(30, watcher.kill)
    hung.start()
    try:
        assert watcher.stdout is not None
        for content in ("first\nline", "second"):
            event = author.event(content)
            assert isinstance(pay(relay, payment_for(relay, author, event)), Fulfill)
            line = watcher.stdout.readline()
            assert line.rstrip().endswith(
                f"{author.pubkey[:8]}  kind 1      {' '.join(content.split())}"
            )
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(20) == 0
    finally:
        hung.cancel()
        watcher.kill()
        watcher.wait()


# peers and audit


def receipts(relay: RelayProcess, peer: str = "local") -> list[Any]:
    engine = SqliteEngine(relay.data)
    try:
        return list(Ledger(engine).receipts(peer))
    finally:
        engine.close()


def test_peers_come_and_go_beside_a_running_relay(relay: RelayProcess) -> None:
    added = command(
        relay, "peers", "add", "bob", "--jwt", "--address", "g.agent.bob",
        "--endpoint", "https://bob.example/ilp", "--max-balance", "5000", "--max-packet", "4000",
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    token = re.search(r"token +(\S{43})", added.stdout)
    secret = re.search(r"JWT secret +(\S{43})", added.stdout)
    assert token is not None
    assert secret is not None

    author = Author()
    payment = payment_for(relay, author, author.event("x", tags=[]))
    assert isinstance(pay(relay, payment, token[1]), Fulfill)
    shown = command(relay, "peers", "show", "bob").stdout
    assert re.search(rf"^posted +{payment.amount}$", shown, re.MULTILINE)
    assert re.search(r"^max balance +5000$", shown, re.MULTILINE)
    assert re.search(r"^JWT +yes$", shown, re.MULTILINE)
    assert re.search(r"^receipts +1$", shown, re.MULTILINE)
    large = payment_for(relay, author, author.event(), amount=4001)
    assert code(pay(relay, large, token[1])) == "F08"

    listed = command(relay, "peers", "list").stdout
    assert {line.split()[0] for line in listed.splitlines()} >= {"peer", "local", "bob"}
    for output in (shown, listed, relay.log):
        assert token[1] not in output
        assert secret[1] not in output

    assert command(relay, "peers", "add", "bob").returncode == 1
    assert command(relay, "peers", "remove", "bob").returncode == 0
    assert command(relay, "peers", "show", "bob").returncode == 1
    while post_packet(relay, payment.prepare, Authorization=f"Bearer {token[1]}").status != 401:
        time.sleep(0.1)  # the relay remembers its peers for a few seconds
    audited = command(relay, "audit")
    assert (audited.returncode, audited.stdout.splitlines()[-1]) == (0, "0 differences")


def code(reply: Fulfill | Reject) -> str:
    return reply.code if isinstance(reply, Reject) else "fulfilled"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["add", "x", "--token", "short"], "32 random bytes"),
        (["add", "x", "--endpoint", "x.example"], "URL"),
        (["add", "a#b"], "id"),
        (["show", "nobody"], "nobody"),
        (["remove", "nobody"], "nobody"),
    ],
)
def test_a_wrong_peer_is_refused_with_the_reason(
    relay: RelayProcess, arguments: list[str], reason: str
) -> None:
    done = command(relay, "peers", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("farthing: ")
    assert reason in done.stderr


def test_audit_adds_up_and_finds_what_is_wrong(start_relay: Callable[..., RelayProcess]) -> None:
    relay = start_relay(port=free_port(), price_per_byte=PER_BYTE)
    author = Author()
    payment = payment_for(relay, author, author.event())
    assert isinstance(pay(relay, payment), Fulfill)
    done = command(relay, "audit")
    assert done.returncode == 0
    # The relay's own kind 10032 is the other event.
    assert (
        done.stdout
        == f"1 peers, 1 receipts, 2 events, {payment.amount} posted, 0 pending\n0 differences\n"
    )
    assert relay.stop() == 0
    engine = SqliteEngine(relay.data)
    engine.write(Add(Table.LEDGER, "balance#local", "balance", {"posted": 1, "owed": 1}))
    engine.close()
    done = command(relay, "audit")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "1 differences"
    assert f"posted is {payment.amount + 1} and adds up to {payment.amount}" in done.stdout


# Prices that change


def test_kind_10032_follows_the_prices(
    start_relay: Callable[..., RelayProcess], connect: Any
) -> None:
    seen = []
    for price in (10, 10, 25):
        relay = start_relay(port=free_port(), price_per_byte=price, ilp_address="g.agent.bob",
                            relay_url="wss://bob.example")  # fmt: skip
        client = connect(relay)
        # Stored, and perhaps once more as it is streamed: a client may see an event twice.
        event, *_ = client.ask({"kinds": [10032], "authors": [relay.pubkey]})
        tags = dict(tag[:2] for tag in event["tags"])
        assert tags["price_per_byte"] == str(price)
        assert tags["ilp_address"] == json.loads(event["content"])["ilpAddress"] == "g.agent.bob"
        assert tags["ilp_endpoint"] == "https://bob.example/ilp"
        assert information(relay)["fees"]["publication_per_byte"]["amount"] == price
        client.close()
        assert relay.stop() == 0
        seen.append(event)
    assert seen[0] == seen[1]  # nothing has changed, so nothing is said anew
    assert seen[2]["id"] != seen[0]["id"]
    assert seen[2]["created_at"] > seen[0]["created_at"]


def test_a_weak_token_of_the_environment_is_refused(tmp_path: Any) -> None:
    relay = RelayProcess(tmp_path / "data", peer_token="weak")
    with pytest.raises(AssertionError, match="32 random bytes"):
        relay.start()
    assert relay.wait() == 1


# By callback


class Callbacks(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.answered.is_set():  # type: ignore[attr-defined]
            self.send_error(404)  # of no such request
            return
        self.server.taken.put((self.path, self.headers["Request-Id"], body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def callbacks() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Callbacks) as server:
        server.taken = queue.Queue()  # type: ignore[attr-defined]
        server.answered = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_reply_comes_to_the_peers_own_server(
    relay: RelayProcess, callbacks: Any, client: RawClient
) -> None:
    place = f"http://127.0.0.1:{callbacks.server_address[1]}"
    added = command(relay, "peers", "add", "async", "--endpoint", f"{place}/ilp")
    token = re.search(r"token +(\S+)", added.stdout)
    assert token is not None
    author = Author()
    event = author.event("asynchronous")
    payment = payment_for(relay, author, event)
    headers = {"Authorization": f"Bearer {token[1]}", "Request_Id": "42", "Prefer": "respond-async"}

    answer = post_packet(relay, payment.prepare, Callback_Url=f"{place}/back", **headers)
    callbacks.answered.set()  # only now does the peer know what it has asked

    assert (answer.status, answer.data) == (202, b"")
    path, request_id, body = callbacks.taken.get(timeout=10)
    assert (path, request_id) == ("/back", "42")
    assert decode_reply(body) == Fulfill(payment.fulfillment)
    assert set(client.ids({"ids": [event["id"]]})) == {event["id"]}

    for other in ("http://127.0.0.1:1/", "http://localhost/", f"{place}@127.0.0.1:1/", "http://["):
        assert post_packet(relay, payment.prepare, Callback_Url=other, **headers).status == 400
    assert callbacks.taken.empty()
    # The local peer has no endpoint, and so no callbacks.
    mine = {"Request_Id": "1", "Callback_Url": f"{place}/back"}
    assert post_packet(relay, payment.prepare, **mine).status == 400
    assert isinstance(reply_of(post_packet(relay, payment.prepare)), Reject)  # another's payment


def test_an_audit_beside_a_busy_relay_finds_nothing(relay: RelayProcess) -> None:
    """Receipts and events are read one after the other, and both grow meanwhile."""
    enough, done, author = threading.Event(), threading.Event(), Author()

    def keep_paying() -> None:
        while not done.is_set():
            pay(relay, payment_for(relay, author, author.event()))
            enough.set()

    payers = [threading.Thread(target=keep_paying) for _ in range(4)]
    for payer in payers:
        payer.start()
    try:
        assert enough.wait(20)
        audits = [command(relay, "audit") for _ in range(4)]
    finally:
        done.set()
        for payer in payers:
            payer.join()
    assert [(audit.returncode, audit.stdout.splitlines()[-1]) for audit in audits] == [
        (0, "0 differences")
    ] * 4
