"""The comparison with rust-nostr's relay counts what relays send, and says what limited it."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from farthing.nostr.events import parse_event
from farthing.nostr.filters import parse_filter
from tests.bench.beside.load import split
from tests.bench.beside.material import Filter, Material, Scale, pubkey, text
from tests.bench.beside.relays import FARTHING, PEERS, RUST, Peer, process_tree
from tests.bench.beside.turns import Comparison, Finding, loaded
from tests.bench.loading import LoadFailed
from tests.bench.result import at_least, at_most
from tests.bench.wire import PING, TEXT

EVENT = b'["EVENT","q1",{"content":"%b"}]'
EOSE = b'["EOSE","q1"]'
TINY = Scale(
    stored=2500, ingested=0, published=40, rounds=2, alone=3, each=2, lookups=3, subscribers=2,
    fanned_out=6,
)  # fmt: skip


def frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """As a server sends it."""
    length = len(payload)
    if length < 126:
        return bytes([0x80 | opcode, length]) + payload
    if length < 1 << 16:
        return bytes([0x80 | opcode, 126]) + length.to_bytes(2, "big") + payload
    return bytes([0x80 | opcode, 127]) + length.to_bytes(8, "big") + payload


def test_events_are_counted_wherever_the_stream_is_cut() -> None:
    others = [(PING, b""), (TEXT, EOSE), (TEXT, b'["NOTICE","VVVV"]'), (PING, b"V")]
    stream = b"".join(
        [frame(EVENT % b""), frame(b"", PING), frame(EVENT % (b"x" * 200)), frame(EOSE),
         frame(others[2][1]), frame(b"V", PING), frame(EVENT % (b"x" * 300))]
    )  # fmt: skip
    for cut in range(len(stream) + 1):
        first, found, rest = split(stream[:cut])
        second, later, left = split(rest + stream[cut:])
        assert (first + second, found + later, left) == (3, others, b"")


def test_a_long_event_is_one() -> None:
    assert split(frame(EVENT % (b"x" * 70_000)) + b"\x81") == (1, [], b"\x81")


def test_the_processes_of_a_relay_are_it_and_what_it_started() -> None:
    command = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", f"print(flush=True); {command}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None and parent.stdin is not None
        parent.stdout.readline()
        while len(process_tree(parent.pid)) < 2:
            assert parent.poll() is None
        assert process_tree(os.getpid())[0] == os.getpid()
        assert parent.pid in process_tree(os.getpid())
        parent.stdin.close()


def findings(rate: int, load_share: float) -> list[Finding]:
    return [Finding(rate, 1.0, 0.1, load_share)]


def test_a_busy_generator_moves_the_target_to_the_cpu() -> None:
    ours, theirs = findings(100, 0.2), findings(200, 0.3)
    rate, cpu = Comparison("reads", ours, theirs, "other").rate("REQ/s", 0.3)
    assert (rate.target, rate.verdict, cpu.target) == (at_least(0.3), "pass", None)

    theirs = findings(200, 0.95)
    rate, cpu = Comparison("reads", ours, theirs, "other").rate("REQ/s", 0.25)
    assert (rate.target, cpu.target) == (None, at_most(4))
    assert "it is the limit" in rate.note
    assert cpu.ratio == pytest.approx(2)


@pytest.fixture(scope="module")
def material() -> Material:
    return Material(TINY, 0)


def requested(peer: Peer, *filters: Filter, expected: int) -> Finding:
    return loaded(peer, "requests", filters=[[text(each) for each in filters]], expected=expected)


@pytest.mark.parametrize("name", [FARTHING, RUST])
def test_each_relay_is_loaded_and_its_answers_are_checked(
    name: str, material: Material, tmp_path: Path
) -> None:
    if name == RUST:
        pytest.importorskip("nostr_sdk", reason="nostr-sdk is not installed")
    with PEERS[name](tmp_path / "data") as peer:
        messages = [event.message.decode() for event in material.spare]
        published = loaded(peer, "publishes", messages=messages)
        assert published.operations == len(messages)
        assert 0 < published.p50 <= published.p99

        author = {"authors": [pubkey(0)]}
        one, five = {"ids": [material.spare[0].id]}, {**author, "limit": 5}
        assert requested(peer, one, one, one, expected=1).operations == 3
        assert requested(peer, five, expected=5).operations == 1
        with pytest.raises(LoadFailed, match="5 events instead of 100"):
            requested(peer, five, expected=100)

        events = material.fans(0, burst=True)
        found = loaded(
            peer, "deliveries", filters=[text(each) for each in material.subscriptions()],
            per_second=0, window=4, messages=[event.message.decode() for event in events],
            expected=material.deliveries(events),
        )  # fmt: skip
        assert (found.operations, found.lost) == (11 * len(events), 0)
        assert peer.cpu() > 0 and peer.resident_mb() > peer.private_mb() > 1 and peer.disk_mb() > 0


def test_what_is_asked_for_is_stored(material: Material) -> None:
    """Whoever asks for the newest hundred of something finds as many."""
    stored = [parse_event(orjson.loads(event.message)[1]) for event in material.stored]
    for name, filters in material.filters().items():
        for filter in map(parse_filter, filters[:5]):
            found = sum(filter.matches(event) for event in stored)
            assert found >= (filter.limit or 1), name
