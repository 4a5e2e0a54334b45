"""Farthing beside rust-nostr's relay: the same load on each in turns, by rate and by server CPU."""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from farthing.nostr.negentropy import Initiator, SealedVector
from tests.bench.beside.material import FULL, KINDS, QUICK, RESULTS, Filter, Material, Scale, text
from tests.bench.beside.relays import FARTHING, PEERS, RUST, Peer, install_rust, rust_version
from tests.bench.beside.turns import Comparison, Finding, ingested, loaded
from tests.bench.ingest import IN_FLIGHT, PUBLISHERS
from tests.bench.loading import Load, LoadFailed
from tests.bench.result import Row, at_most
from tests.bench.syncing import FRAME, SyncingConnection, whole_sync

CLIENTS = 16
_WARM_UP = 2000
_WARM_UP_REQUESTS = 20  # of each client: every thread of a server fills a cache of its own
_PER_SECOND = 200
_STEADY_WINDOW = 1000
_LACKING = 1000  # of so many events, one is missing
_SYNC = "negentropy, a whole sync"
_LONGEST = 600.0  # seconds that publishing may take

# The least REQ/s of 16 clients, as a share of the rival's.
REQUESTS = {"author+kind": 1.2, "tag": 1.2, "kind": 1.2, "everything": 1.2, "feed": 5, "id": 0.3}
# One client's p50 at most, where one is asked for.
ALONE = dict.fromkeys(("author+kind", "tag", "kind", "everything"), 1.5)
PUBLISH_P50 = 1.6
INGEST = 1.6
INGEST_CPU = 1.0
FAN_OUT_P99 = 0.25
BURST = 5
NEGENTROPY_CPU = 0.6
DISK = 0.45
RESIDENT_MB = 300

Measure = Callable[[Peer], dict[str, Finding]]


def run(quick: bool) -> list[Row]:
    install_rust()
    return compare(QUICK if quick else FULL)


def compare(scale: Scale) -> list[Row]:
    material = Material(scale, _WARM_UP)
    with tempfile.TemporaryDirectory() as folder:
        writes = _Turns()
        for turn in range(scale.rounds):
            for name in writes.order(turn):
                with PEERS[name](Path(folder) / f"{name}-{turn}") as peer:
                    writes.add(name, _published(peer, material))
        with ExitStack() as stack:
            peers = {
                name: stack.enter_context(start(Path(folder) / name))
                for name, start in PEERS.items()
            }
            sizes = _filled(peers, material)
            reads = _Turns()
            filters = material.filters()
            for peer in peers.values():
                _asked_before(peer, filters)
            for turn in range(scale.rounds):
                for kind, several in filters.items():
                    for name in reads.order(turn):
                        reads.add(name, _asked(peers[name], kind, several, scale))
                for name in reads.order(turn):
                    reads.add(name, _reconciled(peers[name], material))
            # Last, because it publishes: before, all relays have the same events in every round.
            for turn in range(scale.rounds):
                for name in reads.order(turn):
                    reads.add(name, _fanned_out(peers[name], material, turn))
            memory = [_memory_row(peers, scale)]
    return [*_write_rows(writes), *_read_rows(reads), *sizes, *memory]


class _Turns:
    """Findings by what was measured, of each relay. Each round begins with another one."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, list[Finding]]] = {}

    @staticmethod
    def order(turn: int) -> list[str]:
        names = list(PEERS)
        start = turn % len(names)
        return names[start:] + names[:start]

    def add(self, name: str, findings: dict[str, Finding]) -> None:
        for what, finding in findings.items():
            self._found.setdefault(what, {}).setdefault(name, []).append(finding)

    def of(self, what: str) -> Comparison:
        found = self._found[what]
        return Comparison(what, found[FARTHING], found[RUST], RUST)


def _published(peer: Peer, material: Material) -> dict[str, Finding]:
    """Into a fresh folder: many at a time, then one at a time."""
    load, scale = Load("ws", PUBLISHERS, IN_FLIGHT, _LONGEST), material.scale
    messages = [event.message for event in material.spare]
    ingested(peer, load, messages[:_WARM_UP])
    end = _WARM_UP + scale.ingested
    alone = [message.decode() for message in messages[end:]]
    return {
        f"ingest, {PUBLISHERS} publishers": ingested(peer, load, messages[_WARM_UP:end]),
        "publish, one in flight": loaded(peer, "publishes", messages=alone),
    }


def _write_rows(found: _Turns) -> list[Row]:
    ingest = found.of(f"ingest, {PUBLISHERS} publishers")
    return [
        *ingest.rate("ev/s", INGEST, at_most(INGEST_CPU), f"{RUST} is {rust_version()}"),
        *found.of("publish, one in flight").latency("p50", PUBLISH_P50),
    ]


def _filled(peers: dict[str, Peer], material: Material) -> list[Row]:
    """What the events take on disk, that all later rounds read."""
    load = Load("ws", PUBLISHERS, IN_FLIGHT, _LONGEST)
    for peer in peers.values():
        ingested(peer, load, [event.message for event in material.stored])
    ours, theirs = (peers[name].disk_mb() for name in (FARTHING, RUST))
    name = f"peers: disk of {material.scale.stored:,} events"
    note = "before it is stopped, with its write-ahead log"
    return [Row(name, ours, "MB", theirs, f"MB {RUST}", at_most(DISK), note)]


def _shares(filters: Sequence[Filter], clients: int, each: int) -> list[list[str]]:
    """So many filters for each client, who begin at different ones."""
    texts = [text(filter) for filter in filters]
    stride = max(1, len(texts) // clients)
    return [
        [texts[(client * stride + number) % len(texts)] for number in range(each)]
        for client in range(clients)
    ]


def _expected(kind: str) -> int:
    return 1 if kind == "id" else RESULTS


def _asked_before(peer: Peer, filters: dict[str, list[Filter]]) -> None:
    for kind, several in filters.items():
        shares = _shares(several, CLIENTS, _WARM_UP_REQUESTS)
        loaded(peer, "requests", filters=shares, expected=_expected(kind))


def _asked(peer: Peer, kind: str, filters: list[Filter], scale: Scale) -> dict[str, Finding]:
    each = scale.lookups if kind == "id" else scale.each
    expected = _expected(kind)
    alone, many = _shares(filters, 1, scale.alone), _shares(filters, CLIENTS, each)
    return {
        _alone(kind): loaded(peer, "requests", filters=alone, expected=expected),
        _many(kind): loaded(peer, "requests", filters=many, expected=expected),
    }


def _many(kind: str) -> str:
    return f"REQ by {kind}, {CLIENTS} clients"


def _alone(kind: str) -> str:
    return f"REQ by {kind}, 1 client"


def _reconciled(peer: Peer, material: Material) -> dict[str, Finding]:
    """A whole sync of one that lacks a few of the stored events."""
    events = [event for at, event in enumerate(material.stored) if at % _LACKING]
    mine = SealedVector.seal((event.created_at, bytes.fromhex(event.id)) for event in events)
    ours = Initiator(mine, FRAME)
    connection = SyncingConnection(peer.port)
    before, began = peer.cpu(), time.process_time()
    try:
        session, seconds = whole_sync(connection, ours, {"kinds": list(KINDS)})
    finally:
        connection.close()
    used, load_cpu = peer.cpu() - before, time.process_time() - began
    missing = len(material.stored) - len(events)
    if (session.have, session.need) != (0, missing):
        raise LoadFailed(f"{peer.name}: expected {missing} missing events, got {session.need}")
    return {_SYNC: Finding(1, seconds, used, load_cpu)}


def _fanned_out(peer: Peer, material: Material, turn: int) -> dict[str, Finding]:
    found = {}
    subscriptions = [text(filter) for filter in material.subscriptions()]
    for what, per_second, window in (
        (_STEADY, _PER_SECOND, _STEADY_WINDOW), (_BURST, 0, IN_FLIGHT)
    ):  # fmt: skip
        events = material.fans(turn, burst=not per_second)
        found[what] = loaded(
            peer, "deliveries", filters=subscriptions, per_second=per_second, window=window,
            messages=[event.message.decode() for event in events],
            expected=material.deliveries(events),
        )  # fmt: skip
        if peer.name == FARTHING and found[what].lost:
            raise LoadFailed(f"{FARTHING} did not deliver {found[what].lost} events")
    return found


_STEADY = f"fan-out at {_PER_SECOND}/s"
_BURST = "fan-out in a burst"


def _read_rows(found: _Turns) -> list[Row]:
    rows = []
    for kind, least in REQUESTS.items():
        rows += found.of(_many(kind)).rate("REQ/s", least)
        if kind in ALONE:
            rows += found.of(_alone(kind)).latency("p50", ALONE[kind])
    steady, burst = found.of(_STEADY), found.of(_BURST)
    lost = median(each.lost for each in burst.theirs)
    note = f"{RUST} did not deliver {lost:,.0f} of its events" if lost else ""
    return [
        *rows,
        *found.of(_SYNC).cpu(NEGENTROPY_CPU),
        *steady.latency("p99", FAN_OUT_P99),
        *burst.rate("deliveries/s", BURST, note=note),
    ]


def _memory_row(peers: dict[str, Peer], scale: Scale) -> Row:
    """After all of it."""
    ours, theirs = peers[FARTHING], peers[RUST]
    note = (
        f"without what is mapped from files {ours.private_mb():.0f} MB; {RUST}"
        f" {theirs.resident_mb():.0f} and {theirs.private_mb():.0f} MB"
    )
    name = f"peers: resident memory at {scale.stored:,} events"
    return Row(name, ours.resident_mb(), "MB", target=at_most(RESIDENT_MB), note=note)
