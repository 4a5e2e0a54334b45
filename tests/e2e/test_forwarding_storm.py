"""One condition for many packets, to a next hop that fulfils and claims each of them, and kill -9
in the midst of it. Every packet that was fulfilled is charged once, and what the next hop claims is
owed, but for packets that were on their way when the process died. A stop is no such end: packets
on their way are answered first."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import PaymentFailed, PreparedPayment, send_payment
from farthing.ilp.packet import Code, Fulfill, Prepare, Reject, decode_prepare, encode
from farthing.ports.hosts import ANYWHERE
from farthing.ports.outbound import OutboundFailed
from farthing.store.ledger import Balance, Ledger
from farthing.store.sqlite import SqliteEngine
from tests.e2e.paying import command, free_port, in_ten_minutes
from tests.e2e.relay_process import RelayProcess

FULFILLMENT = bytes(range(32))
AMOUNT, FEE = 10_000, 10
PAYERS = 20
FAR_AHEAD_MS = 10**14


class PlainConnector(ThreadingHTTPServer):
    """A connector as RFC 0027 has it: it knows no repeats."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.claims: list[int] = []
        self.came = threading.Event()  # a packet has come
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}/ilp"

    @property
    def claim(self) -> int:
        return sum(self.claims)

    def handle_error(self, *_: object) -> None:
        pass  # whoever asked was killed


class _Handler(BaseHTTPRequestHandler):
    server: PlainConnector
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        prepare = decode_prepare(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.came.set()
        self.server.may_answer.wait()
        self.server.claims.append(prepare.amount)
        body = encode(Fulfill(FULFILLMENT))
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def plain_connector() -> Iterator[PlainConnector]:
    with PlainConnector() as connector:
        thread = threading.Thread(target=connector.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield connector
        finally:
            connector.may_answer.set()
            connector.shutdown()
            thread.join()


def packet(data: bytes) -> PreparedPayment:
    condition = sha256(FULFILLMENT).digest()
    prepare = Prepare(AMOUNT, in_ten_minutes(), condition, "g.hop.shop", data)
    return PreparedPayment(prepare, FULFILLMENT)


class Payers:
    """Each sends its packets one after another, and notes what was fulfilled."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.fulfilled: set[bytes] = set()

    def send(self, relay: RelayProcess, packets: list[PreparedPayment]) -> None:
        outbound = HttpOutbound(ANYWHERE)
        for each in packets:
            with suppress(OutboundFailed, PaymentFailed):
                reply = send_payment(
                    outbound, f"{relay.http}/ilp", self.token, each, sleep=lambda _: None
                )
                assert isinstance(reply, Fulfill), reply
                self.fulfilled.add(each.prepare.data)

    def send_all(self, relay: RelayProcess, packets: list[list[PreparedPayment]]) -> None:
        threads = [threading.Thread(target=self.send, args=(relay, each)) for each in packets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def add_peers(relay: RelayProcess, hop: PlainConnector) -> str:
    added = command(relay, "peers", "add", "hop", "--address", "g.hop", "--endpoint", hop.endpoint,
                    "--outgoing-token", "t" * 43)  # fmt: skip
    assert added.returncode == 0, added.stderr
    added = command(relay, "peers", "add", "payer", "--max-balance", str(10**12))
    token = re.search(r"token +(\S+)", added.stdout)
    assert token is not None
    return token[1]


def balances(relay: RelayProcess, *, swept: bool = True) -> tuple[Balance, Balance]:
    """Of the payer and of the next hop; unless told otherwise, once what a dead process held has
    been swept."""
    engine = SqliteEngine(relay.data)
    try:
        ledger = Ledger(engine)
        if swept:
            ledger.release_expired(FAR_AHEAD_MS)
        return ledger.balance("payer"), ledger.balance("hop")
    finally:
        engine.close()


def assert_no_differences(relay: RelayProcess) -> None:
    audited = command(relay, "audit")
    assert (audited.returncode, audited.stdout.splitlines()[-1]) == (0, "0 differences")


def test_twenty_packets_with_one_condition_are_twenty_debts(
    start_relay: Callable[..., RelayProcess],
) -> None:
    with plain_connector() as hop:
        relay = start_relay(port=free_port())
        payers = Payers(add_peers(relay, hop))

        payers.send_all(relay, [[packet(bytes([number]))] for number in range(PAYERS)])

        relay.stop()
    payer, next_hop = balances(relay)
    assert len(payers.fulfilled) == PAYERS
    assert hop.claim == next_hop.payable == PAYERS * (AMOUNT - FEE)
    assert (payer.posted, payer.pending) == (PAYERS * AMOUNT, 0)
    assert_no_differences(relay)


def test_books_balance_after_a_kill_while_forwarding(
    start_relay: Callable[..., RelayProcess],
) -> None:
    kills, each = 2, 15
    with plain_connector() as hop:
        port = free_port()
        relay = start_relay(port=port)
        payers = Payers(add_peers(relay, hop))
        packets = [
            [packet(b"%d %d" % (payer, number)) for number in range(each)]
            for payer in range(PAYERS)
        ]
        for number in range(kills):
            before = len(hop.claims)
            storm = threading.Thread(target=payers.send_all, args=(relay, packets))
            storm.start()
            while len(hop.claims) < before + 60:
                assert storm.is_alive()
                storm.join(0.002)
            relay.kill()
            storm.join()
            relay = start_relay(port=port)
            assert len(payers.fulfilled) < each * PAYERS, number
        payers.send_all(relay, packets)  # all of them again: most are answered from their receipts
        relay.stop()
    payer, next_hop = balances(relay)
    assert len(payers.fulfilled) == each * PAYERS
    assert (payer.posted, payer.pending) == (each * PAYERS * AMOUNT, 0)
    assert next_hop.payable == each * PAYERS * (AMOUNT - FEE)
    assert next_hop.payable <= hop.claim <= next_hop.payable + kills * PAYERS * (AMOUNT - FEE)
    assert_no_differences(relay)


def test_a_stop_does_not_wait_long_for_a_next_hop(
    start_relay: Callable[..., RelayProcess],
) -> None:
    replies: list[object] = []
    with plain_connector() as hop:
        hop.may_answer.clear()
        relay = start_relay(port=free_port())
        token, url = add_peers(relay, hop), f"{relay.http}/ilp"

        def send() -> None:
            replies.append(send_payment(HttpOutbound(ANYWHERE), url, token, packet(b"slow")))

        sending = threading.Thread(target=send)
        sending.start()
        assert hop.came.wait(30)
        assert relay.stop() == 0
        sending.join()
    (reply,) = replies  # the payer is answered
    assert isinstance(reply, Reject)
    assert reply.code == Code.R00_TRANSFER_TIMED_OUT
    assert balances(relay, swept=False) == (Balance(), Balance())
    assert_no_differences(relay)
