"""Ingest: durable events a second over WebSocket, as a share of what one core can verify, and the
same load on nostr-relay."""

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.bench import nostr_relay
from tests.bench.loading import Load, LoadFailed, Throughput
from tests.bench.notes import event_messages, signed_notes
from tests.bench.result import Row, at_least
from tests.bench.verification import verification_rate
from tests.e2e.relay_process import RelayProcess

PUBLISHERS = 16
# Deep enough that a server is measured by what it gets done, and not by how long its disk takes.
IN_FLIGHT = 64
SHARE_OF_VERIFICATION = 0.15
_WARM_UP = 1000


def run(quick: bool) -> list[Row]:
    seconds = 3.0 if quick else 15.0
    notes = signed_notes(_WARM_UP + int(seconds * 5000))
    messages = event_messages(notes)
    sample = [event for event, _ in notes[:500]]
    before = verification_rate(sample, seconds / 3)
    with tempfile.TemporaryDirectory() as folder:
        ours = farthing(Path(folder) / "data", messages, seconds)
    after = verification_rate(sample, seconds / 3)
    verified = (before + after) / 2
    return [
        Row("ingest: verification, one core", verified, "sig/s"),
        Row("ingest: Farthing, WebSocket", ours.rate, "ev/s", verified, "sig/s",
            at_least(SHARE_OF_VERIFICATION), _cpu_note(ours)),
        _beside_nostr_relay(ours, messages, seconds),
    ]  # fmt: skip


def farthing(data: Path, messages: Sequence[bytes], seconds: float) -> Throughput:
    relay = RelayProcess(data, price_per_byte=0, requests_per_second=0).start()
    try:
        return publish(relay, messages, seconds)
    finally:
        relay.stop()
        relay.check_log()


def publish(relay: RelayProcess, messages: Sequence[bytes], seconds: float) -> Throughput:
    """What was answered OK true, and is in the file of a server that was not asked to flush."""
    load = Load("ws", PUBLISHERS, IN_FLIGHT, seconds)
    pids = [relay.process.pid]
    warm = load.run(relay.port, messages[:_WARM_UP], pids)
    result = load.run(relay.port, messages[_WARM_UP:], pids)
    kept = _events_in(relay.data)
    assert kept >= warm.stored + result.stored, f"{kept} are kept, more were acknowledged"
    return result


def _events_in(data: Path) -> int:
    with closing(sqlite3.connect(f"file:{data / 'farthing.db'}?mode=ro", uri=True)) as connection:
        (number,) = connection.execute("SELECT count(*) FROM events").fetchone()
        return int(number)


def _cpu_note(result: Throughput) -> str:
    return (
        f"{result.stored:,} events in {result.seconds:.1f} s;"
        f" CPU an event: server {result.server_microseconds:.0f} µs,"
        f" load generator {result.load_cpu / result.stored * 1e6:.0f} µs"
    )


def _beside_nostr_relay(ours: Throughput, messages: Sequence[bytes], seconds: float) -> Row:
    name = "ingest: against nostr-relay 1.14"
    try:
        with nostr_relay.running() as rival:
            load = Load("ws", PUBLISHERS, IN_FLIGHT, seconds)
            load.run(rival.port, messages[:_WARM_UP], rival.pids)
            theirs = load.run(rival.port, messages[_WARM_UP:], rival.pids)
    except (nostr_relay.CannotRun, LoadFailed) as error:
        return Row(name, ours.rate, "ev/s", note=f"not measured: {error}")
    note = f"nostr-relay with PRAGMA synchronous = normal; {_cpu_note(theirs)}"
    return Row(name, ours.rate, "ev/s", theirs.rate, "ev/s", note=note)
