"""kill -9 in a storm of payers, again and again: after each restart what was fulfilled is there,
what was not acknowledged can be sent again, and the books add up."""

import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import PaymentFailed, send_payment
from farthing.connector.client import PreparedPayment as Packet
from farthing.ilp.packet import Fulfill, Reject
from farthing.ports.hosts import ANYWHERE
from farthing.ports.outbound import OutboundFailed
from farthing.store.ledger import Balance, Ledger
from farthing.store.receipts import Receipt, Stored
from farthing.store.sqlite import SqliteEngine
from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.paying import (
    PER_BYTE,
    as_event,
    command,
    free_port,
    in_ten_minutes,
    prepare_payment,
    terms_of,
    utc_now,
)
from tests.e2e.relay_process import RelayProcess

PAYERS = 8
ROUNDS = 3
EVENTS_A_ROUND = 60  # of each payer; more than there is time for
ROOM = 450  # packets or so that fit into the peer's balance


@dataclass
class Storm:
    """Payers who send their packets one after another, and remember what came back."""

    token: str
    fulfilled: dict[str, Packet] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unanswered: dict[str, Packet] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def blow(self, endpoint: str, payers: list[list[tuple[str, Packet]]], enough: int,
             strike: Callable[[], None]) -> None:  # fmt: skip
        """All pay at once; the relay is struck once enough has been fulfilled."""
        goal = len(self.fulfilled) + enough
        reached = threading.Event()
        threads = [
            threading.Thread(target=self._pay_all, args=(endpoint, packets, goal, reached))
            for packets in payers
        ]
        for thread in threads:
            thread.start()
        assert reached.wait(30)
        strike()
        for thread in threads:
            thread.join()

    def _pay_all(self, endpoint: str, packets: list[tuple[str, Packet]], goal: int,
                 reached: threading.Event) -> None:  # fmt: skip
        outbound = HttpOutbound(ANYWHERE)
        for event_id, payment in packets:
            try:
                reply = send_payment(outbound, endpoint, self.token, payment)
            except (OutboundFailed, PaymentFailed):
                with self._mutex:
                    self.unanswered[event_id] = payment
                return  # struck
            self._note(event_id, payment, reply)
            if len(self.fulfilled) >= goal:
                reached.set()

    def _note(self, event_id: str, payment: Packet, reply: Fulfill | Reject) -> None:
        with self._mutex:
            self.unanswered.pop(event_id, None)
            if isinstance(reply, Fulfill):
                self.fulfilled[event_id] = payment
            else:
                self.refused[event_id] = reply.code

    def retry(self, endpoint: str) -> None:
        """Send again, as it was, what got no answer."""
        for event_id, payment in list(self.unanswered.items()):
            self._note(
                event_id,
                payment,
                send_payment(HttpOutbound(ANYWHERE), endpoint, self.token, payment),
            )


def packets_of(relay: RelayProcess) -> list[tuple[str, Packet]]:
    """Notes, versions and deletions of one author, each paid at its price."""
    author, terms = Author(), terms_of(relay)
    packets = []
    for number in range(EVENTS_A_ROUND):
        kind = random.choice([1, 1, 1, 7, 10002, 30023])
        tags = [["d", "x"], ["t", "storm"]]
        event = as_event(author.event(kind=kind, created_at=1_700_000_000 + number, tags=tags))
        payment = prepare_payment(event, bytes.fromhex(author.secret), terms, utc_now())
        prepare = replace(payment.prepare, expires_at=in_ten_minutes())
        packets.append((event.id, replace(payment, prepare=prepare)))
    return packets


def ledger_of(relay: RelayProcess, peer: str) -> tuple[Balance, list[Receipt]]:
    engine = SqliteEngine(relay.data)
    try:
        ledger = Ledger(engine)
        return ledger.balance(peer), list(ledger.receipts(peer))
    finally:
        engine.close()


def test_kill_9_in_a_storm_of_payers(
    start_relay: Callable[..., RelayProcess], connect: Callable[..., RawClient]
) -> None:
    relay = start_relay(port=free_port(), price_per_byte=PER_BYTE)
    limit = ROOM * packets_of(relay)[0][1].amount
    added = command(relay, "peers", "add", "storm", "--max-balance", str(limit))
    token = re.search(r"token +(\S+)", added.stdout)
    assert token is not None
    storm = Storm(token[1])
    for number in range(ROUNDS):
        payers = [packets_of(relay) for _ in range(PAYERS)]
        storm.blow(terms_of(relay).endpoint, payers, random.randint(5, 90), relay.kill)
        assert relay.process.returncode == -9
        relay = start_relay(port=free_port(), price_per_byte=PER_BYTE)
        if number == 1:  # nothing is lost by another death before the retries
            relay.kill()
            relay = start_relay(port=free_port(), price_per_byte=PER_BYTE)
        storm.retry(terms_of(relay).endpoint)
        check(relay, connect(relay), storm, limit)
    # And now without a death, until the limit holds.
    payers = [packets_of(relay) for _ in range(PAYERS)]
    storm.blow(terms_of(relay).endpoint, payers, 1, lambda: None)
    check(relay, connect(relay), storm, limit)
    assert set(storm.refused.values()) <= {"T04"}
    assert storm.refused


def check(relay: RelayProcess, client: RawClient, storm: Storm, limit: int) -> None:
    assert storm.unanswered == {}
    assert set(storm.refused.values()) <= {"T04"}
    balance, receipts = ledger_of(relay, "storm")
    paid = {receipt.purpose.mark: receipt.amount for receipt in receipts}
    assert len(paid) == len(receipts)
    assert paid == {event_id: packet.amount for event_id, packet in storm.fulfilled.items()}
    assert (balance.posted, balance.owed, balance.pending) == (sum(paid.values()),) * 2 + (0,)
    assert balance.owed <= limit
    stored = [each.purpose for each in receipts if isinstance(each.purpose, Stored)]
    kept = {each.event_id for each in stored if each.kind in (1, 7)}
    assert set(found(client, kept)) == kept
    assert found(client, set(storm.refused)) == []
    audited = command(relay, "audit")
    assert (audited.returncode, audited.stdout.splitlines()[-1]) == (0, "0 differences")


def found(client: RawClient, ids: set[str]) -> list[Any]:
    wanted = sorted(ids)
    chunks = [wanted[start : start + 500] for start in range(0, len(wanted), 500)]
    return [each for some in chunks for each in client.ids({"ids": some, "limit": 5000})]
