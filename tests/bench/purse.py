"""Purses: EVENTs paid from one next to free ones, and STREAM packets that fill one next to packets
that pay for a note each, in turns."""

import tempfile
from pathlib import Path
from secrets import token_bytes

from farthing.connector.client import utc_now
from farthing.ilp.condition import condition_of
from farthing.ilp.packet import TYPE_PREPARE, Prepare, encode, to_milliseconds
from farthing.ilp.spsp import connect
from farthing.ilp.stream import NONCE_LENGTH, StreamPacket, keys_of
from farthing.ilp.stream_frames import StreamMoney
from farthing.nostr.events import public_key_of
from tests.bench.ingest import IN_FLIGHT, PUBLISHERS
from tests.bench.loading import Load, Throughput
from tests.bench.notes import author_secret, event_messages, signed_notes
from tests.bench.paid import LIFE, TOKEN, UNLIMITED, packets
from tests.bench.result import Row, at_least
from tests.e2e.purses import PURSE_TOKEN, PURSES, credit
from tests.e2e.relay_process import RelayProcess

SHARE_OF_FREE = 0.8
SHARE_OF_PAID = 0.8
_WARM_UP = 1000
_NOTHING = Throughput(0, 0.0, 0.0, 0.0)
_PAYER = author_secret(0)


def run(quick: bool) -> list[Row]:
    turns, seconds = (2, 2.0) if quick else (4, 6.0)
    with tempfile.TemporaryDirectory() as folder:
        free = RelayProcess(Path(folder) / "free", price_per_byte=0, requests_per_second=0).start()
        purses = RelayProcess(
            Path(folder) / "purses",
            **{**PURSES, "purse_token": PURSE_TOKEN, "peer_token": TOKEN},
            packets_per_minute=UNLIMITED,
        ).start()
        try:
            return [_events(free, purses, turns, seconds), _packets(purses, turns, seconds)]
        finally:
            for relay in (free, purses):
                relay.stop()
                relay.check_log()


def _events(free: RelayProcess, purses: RelayProcess, turns: int, seconds: float) -> Row:
    """The same author, logged in at both: what differs is the payment."""
    credit(purses, public_key_of(_PAYER), 10**15)
    load = Load("ws", PUBLISHERS, IN_FLIGHT, seconds, _PAYER.hex())
    without, drawn = _NOTHING, _NOTHING
    for relay in (free, purses):
        load.run(relay.port, event_messages(signed_notes(_WARM_UP, 1)), [relay.process.pid])
    for _ in range(turns):
        notes = signed_notes(int(seconds * 5000), 1)
        without += load.run(free.port, event_messages(notes), [free.process.pid])
        drawn += load.run(purses.port, event_messages(notes), [purses.process.pid])
    return Row(
        "purse: EVENT paid from a purse", drawn.rate, "ev/s", without.rate, "ev/s free",
        at_least(SHARE_OF_FREE), _cpu(drawn, without),
    )  # fmt: skip


def _packets(relay: RelayProcess, turns: int, seconds: float) -> Row:
    load = Load("http", PUBLISHERS, IN_FLIGHT, seconds, TOKEN)
    pid = [relay.process.pid]
    paid, streamed = _NOTHING, _NOTHING
    load.run(relay.port, packets(signed_notes(_WARM_UP), relay), pid)
    load.run(relay.port, stream_packets(_WARM_UP, relay), pid)
    for _ in range(turns):
        number = int(seconds * 5000)
        paid += load.run(relay.port, packets(signed_notes(number), relay), pid)
        streamed += load.run(relay.port, stream_packets(number, relay), pid)
    return Row(
        "purse: STREAM packets", streamed.rate, "packets/s", paid.rate, "paid notes/s",
        at_least(SHARE_OF_PAID), _cpu(streamed, paid),
    )  # fmt: skip


def stream_packets(number: int, relay: RelayProcess) -> list[bytes]:
    """Packets of one connection, each with a hundred units."""
    secret = bytes.fromhex((relay.data / "secret-key").read_text().strip())
    purse = bytes.fromhex(public_key_of(_PAYER))
    to = connect(secret, relay.welcome["ILP address"], purse, token_bytes(16))
    keys = keys_of(to.shared_secret)
    expires_at = to_milliseconds(utc_now() + LIFE)
    made = []
    for sequence in range(1, number + 1):
        request = StreamPacket(sequence, TYPE_PREPARE, 100, (StreamMoney(1, 1),))
        data = keys.seal(request, sequence.to_bytes(NONCE_LENGTH))
        condition = condition_of(keys.fulfil(data))
        made.append(encode(Prepare(100, expires_at, condition, to.destination_account, data)))
    return made


def _cpu(one: Throughput, other: Throughput) -> str:
    return (
        f"{one.stored:,}; CPU each: server {one.server_microseconds:.0f} µs"
        f" against {other.server_microseconds:.0f} µs"
    )
