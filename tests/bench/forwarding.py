"""Forwarding: packets a second through one hop, next to local delivery in turns."""

import tempfile
from pathlib import Path

from farthing.ilp.tokens import seal
from farthing.store.ledger import Ledger, Peer, hash_token
from farthing.store.sqlite import SqliteEngine
from tests.bench.ingest import IN_FLIGHT, PUBLISHERS
from tests.bench.loading import Load, Throughput
from tests.bench.notes import signed_notes
from tests.bench.paid import packets
from tests.bench.result import Row, at_least
from tests.e2e.relay_process import RelayProcess

SHARE_OF_LOCAL = 0.5
_WARM_UP = 500
_TOKEN = "bench-token-0123456789-abcdefghijklmnopqrstuvwxyz"
_BETWEEN = "between-the-two-0123456789-abcdefghijklmnopqrstuv"
_SETTINGS = {
    "price_per_byte": 10,
    "peer_token": _TOKEN,
    "packets_per_minute": 10**9,
    "forward_fee": 0,
    "forward_fee_ppm": 0,
    "upkeep_seconds": 0,
}


def run(quick: bool) -> list[Row]:
    local, forwarded = measure(quick)
    note = (
        f"{forwarded.stored:,} packets; CPU a packet: both agents"
        f" {forwarded.server_microseconds:.0f} µs against {local.server_microseconds:.0f} µs"
    )
    return [
        Row("forwarding: one hop, 16 payers", forwarded.rate, "packets/s", local.rate,
            "packets/s delivered locally", at_least(SHARE_OF_LOCAL), note),
    ]  # fmt: skip


def measure(quick: bool) -> tuple[Throughput, Throughput]:
    """Local delivery, and the same packets forwarded by one hop."""
    turns, seconds = (2, 2.0) if quick else (4, 6.0)
    with tempfile.TemporaryDirectory() as folder:
        end = RelayProcess(Path(folder) / "end", ilp_address="g.agent.end", **_SETTINGS).start()
        hop = RelayProcess(Path(folder) / "hop", ilp_address="g.agent.hop", **_SETTINGS).start()
        try:
            introduce(hop, end)
            return _in_turns(hop, end, turns, seconds)
        finally:
            for relay in (hop, end):
                relay.stop()
                relay.check_log()


def introduce(hop: RelayProcess, end: RelayProcess) -> None:
    """Peers by hand: the hop reaches the end, which knows the hop by its token."""
    owner = bytes.fromhex((hop.data / "secret-key").read_text().strip())
    for relay, peer in (
        (end, Peer("hop", hash_token(_BETWEEN))),
        (hop, Peer("end", hash_token("nobody shows this"), ilp_address="g.agent.end",
                   endpoint=f"{end.http}/ilp",
                   outgoing_token=seal(owner, "end", _BETWEEN.encode()))),
    ):  # fmt: skip
        engine = SqliteEngine(relay.data)
        Ledger(engine).add_peer(peer)
        engine.close()


def _in_turns(
    hop: RelayProcess, end: RelayProcess, turns: int, seconds: float
) -> tuple[Throughput, Throughput]:
    load = Load("http", PUBLISHERS, IN_FLIGHT, seconds, _TOKEN)
    local = forwarded = Throughput(0, 0.0, 0.0, 0.0)
    pids = [hop.process.pid, end.process.pid]
    for relay in (end, hop):
        load.run(relay.port, packets(signed_notes(_WARM_UP), end), pids)
    for _ in range(turns):
        local += load.run(end.port, packets(signed_notes(int(seconds * 3000)), end), pids)
        forwarded += load.run(hop.port, packets(signed_notes(int(seconds * 3000)), end), pids)
    return local, forwarded
