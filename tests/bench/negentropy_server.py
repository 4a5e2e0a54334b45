"""Negentropy on a running server: set-up and first answer against sorting the same set in plain
Python, a whole sync at 0.1 % difference, memory, and what a sync costs in DynamoDB's units."""

import gc
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from farthing.context import Agent
from farthing.nostr.filters import Filter
from farthing.nostr.negentropy import Initiator, SealedVector
from farthing.nostr.negentropy.wire import RECORD_SIZE, TIMESTAMP_SIZE
from farthing.relay.members import find_members, seal_members
from farthing.relay.sealed_sets import SEALED
from farthing.settings import Settings
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Put, Table
from infra.costs.counting import Cost, CountingEngine
from tests.bench.result import Row, at_most
from tests.bench.stored import stored_folder
from tests.bench.syncing import FRAME, SyncingConnection, whole_sync
from tests.bench.worlds import OWNER, Client, Sink, world
from tests.e2e.relay_process import RelayProcess

SIZES = (10_000, 100_000, 1_000_000)
RATIO = 2
PEAK_MB = 512
DIFFERENCE = 0.001
TURNS = 3
FILTER = {"kinds": [1, 7]}  # all that is stored but the owner's own
_SNAPSHOT_ITEM = 390_000  # bytes; DynamoDB takes 400 KB
_EMPTY = "6100000200"


def run(quick: bool) -> list[Row]:
    sizes = SIZES[:2] if quick else SIZES
    rows = [row for size in sizes for row in _served(size, last=size == sizes[-1])]
    return rows + [row for size in sizes[:2] for row in _units(size)]


# On the server


def _served(size: int, *, last: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        shutil.copytree(stored_folder(size), data)  # a server leaves marks in its folder
        theirs = _records(data)
        ours = Initiator(_differing(theirs), FRAME)
        pairs = _pairs(theirs)
        relay = RelayProcess(data, price_per_byte=0, requests_per_second=0).start()
        try:
            peer = SyncingConnection(relay.port)
            plain, opened = _in_turns(pairs, peer, ours.initiate().hex())
            answer = _best(lambda: peer.ask("NEG-MSG", "bench", ours.initiate().hex()))
            session, whole = whole_sync(peer, ours, FILTER)
            missing = int(size * DIFFERENCE / 2)
            assert (session.have, session.need) == (missing, missing)
            peer.close()
            peak = _peak_mb(relay)
        finally:
            relay.stop()
        relay.check_log()
    name = f"negentropy on the server: {size:,}"
    note = (
        f"{session.rounds} rounds and {session.octets:,} bytes at {DIFFERENCE:.1%} difference;"
        f" the first answer alone {1000 * answer:.0f} ms"
    )
    return [
        Row(f"{name}, set-up and first answer", 1000 * opened, "ms", 1000 * plain,
            "ms plain Python", at_most(RATIO) if last else None, note),
        Row(f"{name}, whole sync", 1000 * whole, "ms"),
        Row(f"{name}, peak memory", peak, "MB", target=at_most(PEAK_MB) if last else None),
    ]  # fmt: skip


def _records(data: Path) -> SealedVector:
    engine = SqliteEngine(data)
    try:
        agent = Agent(Settings(secret_key=OWNER.hex()), engine, Sink())
        return seal_members(find_members(agent, [Filter(kinds=frozenset(FILTER["kinds"]))]), 10**9)
    finally:
        engine.close()


def _differing(vector: SealedVector) -> SealedVector:
    """Without some of the set, and with as many that it does not have."""
    dice, missing = random.Random(1), int(len(vector) * DIFFERENCE / 2)
    records = bytearray(vector.to_bytes())
    for index in dice.sample(range(len(vector)), missing):
        at = index * RECORD_SIZE + TIMESTAMP_SIZE  # the same moment, another id in its place
        records[at : at + RECORD_SIZE - TIMESTAMP_SIZE] = dice.randbytes(32)
    return SealedVector.seal_records(records)


def _pairs(vector: SealedVector) -> list[tuple[int, bytes]]:
    """(timestamp, id) in no order."""
    records = (vector.record(index) for index in range(len(vector)))
    pairs = [(int.from_bytes(record[:8], "big"), record[8:]) for record in records]
    random.Random(1).shuffle(pairs)
    return pairs


def _in_turns(
    pairs: list[tuple[int, bytes]], peer: SyncingConnection, opening: str
) -> tuple[float, float]:  # fmt: skip
    """Plain Python and the server, in turns: a busy machine slows both."""
    plain, opened = [], []
    for _ in range(TURNS):
        plain.append(_seconds(lambda: _plain(pairs)))
        opened.append(_seconds(lambda: peer.ask("NEG-OPEN", "bench", FILTER, opening)))
    return min(plain), min(opened)


def _plain(pairs: list[tuple[int, bytes]]) -> int:
    sorted(pairs)
    return sum(int.from_bytes(event_id, "little") for _, event_id in pairs)


def _peak_mb(relay: RelayProcess) -> float:
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def _best(work: Callable[[], object]) -> float:
    return min(_seconds(work) for _ in range(TURNS))


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# In DynamoDB


def _units(size: int) -> list[Row]:
    engine = SqliteEngine(stored_folder(size))
    try:
        counting = CountingEngine(engine)
        agent = Agent(Settings(secret_key=OWNER.hex()), counting, Sink())
        client = Client(agent)
        costs = {}
        for name, parts in (
            ("open", ("NEG-OPEN", "s", FILTER, _EMPTY)),
            ("message", ("NEG-MSG", "s", _EMPTY)),
            ("message, elsewhere", ("NEG-MSG", "s", _EMPTY)),
        ):
            if "elsewhere" in name:
                SEALED.clear()
            counting.reset()
            assert client.send(*parts)[0] == "NEG-MSG"
            costs[name] = counting.reset()
    finally:
        engine.close()
        SEALED.clear()
    costs["snapshot, if it were kept"] = _snapshot(size)
    return [
        Row(f"units: sync of {size:,}, {name}", cost.read_units, "read", note=_note(cost))
        for name, cost in costs.items()
    ]


def _snapshot(size: int) -> Cost:
    """To write a set of so many records down, and to read it once."""
    with world(counting=True) as agent:
        assert isinstance(agent.engine, CountingEngine)
        agent.engine.reset()
        whole, rest = divmod(size * RECORD_SIZE, _SNAPSHOT_ITEM)
        for number, length in enumerate([*[_SNAPSHOT_ITEM] * whole, rest]):
            agent.engine.write(Put(Table.ROUTES, "snapshot", str(number), {"b": bytes(length)}))
            agent.engine.get(Table.ROUTES, "snapshot", str(number))
        return agent.engine.reset()


def _note(cost: Cost) -> str:
    return f"{cost.requests} requests, {cost.read_units} read and {cost.write_units} write units"
