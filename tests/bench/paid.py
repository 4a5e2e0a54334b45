"""Paid writes: events a second through `POST /ilp`, next to WebSocket ingest in turns."""

import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from farthing.connector.client import RelayTerms, prepare_payment, utc_now
from farthing.ilp.packet import encode
from farthing.ilp.tariff import Tariff
from farthing.nostr.events import Event
from tests.bench.ingest import IN_FLIGHT, PUBLISHERS
from tests.bench.loading import Load, Throughput
from tests.bench.notes import event_messages, signed_notes
from tests.bench.result import Row, at_least
from tests.e2e.relay_process import RelayProcess

PAYERS = PUBLISHERS
SHARE_OF_INGEST = 0.7
_WARM_UP = 1000
TOKEN = "bench-token-0123456789-abcdefghijklmnopqrstuvwxyz"
_PRICE_PER_BYTE = 10
UNLIMITED = 10**9
LIFE = timedelta(minutes=10)  # of a packet: they are made ahead


def run(quick: bool) -> list[Row]:
    turns, seconds = (2, 2.0) if quick else (4, 6.0)
    with tempfile.TemporaryDirectory() as folder:
        free = RelayProcess(Path(folder) / "free", price_per_byte=0, requests_per_second=0).start()
        paid = RelayProcess(
            Path(folder) / "paid", price_per_byte=_PRICE_PER_BYTE, peer_token=TOKEN,
            packets_per_minute=UNLIMITED,
        ).start()  # fmt: skip
        try:
            ingest, payments = _in_turns(free, paid, turns, seconds)
        finally:
            for relay in (free, paid):
                relay.stop()
                relay.check_log()
    note = (
        f"{payments.stored:,} packets; CPU an event: server {payments.server_microseconds:.0f} µs"
        f" against {ingest.server_microseconds:.0f} µs by WebSocket"
    )
    return [
        Row("paid: POST /ilp, 16 payers", payments.rate, "ev/s", ingest.rate, "ev/s by WebSocket",
            at_least(SHARE_OF_INGEST), note),
    ]  # fmt: skip


def _in_turns(
    free: RelayProcess, paid: RelayProcess, turns: int, seconds: float
) -> tuple[Throughput, Throughput]:
    by_socket = Load("ws", PUBLISHERS, IN_FLIGHT, seconds)
    by_packet = Load("http", PAYERS, IN_FLIGHT, seconds, TOKEN)
    ingest = payments = Throughput(0, 0.0, 0.0, 0.0)
    by_socket.run(free.port, event_messages(signed_notes(_WARM_UP)), [free.process.pid])
    by_packet.run(paid.port, packets(signed_notes(_WARM_UP), paid), [paid.process.pid])
    for _ in range(turns):
        notes = signed_notes(int(seconds * 5000))
        ingest += by_socket.run(free.port, event_messages(notes), [free.process.pid])
        payments += by_packet.run(paid.port, packets(notes, paid), [paid.process.pid])
    return ingest, payments


def packets(notes: Sequence[tuple[Event, bytes]], relay: RelayProcess) -> list[bytes]:
    """A Prepare at the exact price for each note, by the author scheme."""
    tariff = Tariff(_PRICE_PER_BYTE, {}, "USD", 9)
    terms = RelayTerms(relay.welcome["ILP address"], f"{relay.http}/ilp", relay.pubkey, tariff)
    now = utc_now() + LIFE
    return [encode(prepare_payment(event, secret, terms, now).prepare) for event, secret in notes]
