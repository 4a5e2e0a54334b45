"""How long the negentropy core takes to seal a set, answer and sync, against plain Python.

    python tests/bench/bench_negentropy_core.py [sizes...] [--json FILE]

Plain Python is `sorted()` of the same (timestamp, id) tuples and the sum of their ids; the best of
three turns counts on either side. Peak memory is that of a process of its own that seals a stream.
"""

import argparse
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "layers" / "farthing" / "python"))

from farthing.nostr.negentropy import Initiator, Responder, SealedVector

SIZES = [10_000, 100_000, 1_000_000]
TURNS = 3
DIFFERENCE = 0.001
FRAME_LIMIT = 60_000
COLUMNS = {
    "items": "items",
    "plain_ms": "plain ms",
    "seal_ms": "seal ms",
    "answer_ms": "answer ms",
    "ratio": "ratio",
    "newest_plain_ms": "newest plain",
    "newest_seal_ms": "newest seal",
    "newest_ratio": "ratio",
    "snapshot_ms": "snapshot ms",
    "sync_ms": "sync ms",
    "rounds": "rounds",
    "bytes": "bytes",
    "peak_mb": "peak MB",
}

Item = tuple[int, bytes]


def stream(count: int) -> Iterator[Item]:
    rnd = Random(1)
    return ((1_700_000_000 + rnd.randrange(30_000_000), rnd.randbytes(32)) for _ in range(count))


def plain(items: list[Item]) -> int:
    sorted(items)
    return sum(int.from_bytes(event_id, "little") for _, event_id in items)


def first_answer(items: list[Item], opening: bytes) -> bytes:
    return Responder(SealedVector.seal(items), FRAME_LIMIT).reconcile(opening)


def milliseconds(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def compare(items: list[Item], opening: bytes) -> tuple[float, float]:
    """Plain Python and sealing with the first answer, in turns: a busy machine slows both."""
    turns = [
        (milliseconds(lambda: plain(items)), milliseconds(lambda: first_answer(items, opening)))
        for _ in range(TURNS)
    ]
    return min(turn[0] for turn in turns), min(turn[1] for turn in turns)


def sync(initiator: Initiator, responder: Responder) -> tuple[int, int]:
    """Rounds and bytes, both ways."""
    rounds = size = 0
    message: bytes | None = initiator.initiate()
    while message is not None:
        reply = responder.reconcile(message)
        rounds, size = rounds + 1, size + len(message) + len(reply)
        message = initiator.reconcile(reply).message
    return rounds, size


def measure(count: int, peak_mb: float) -> dict[str, float]:
    items = list(stream(count))
    opening, session = measure_session(items)
    plain_ms, sealed = compare(items, opening)
    newest = sorted(items, key=lambda item: (-item[0], item[1]))
    newest_plain, newest_sealed = compare(newest, opening)
    return session | {
        "items": count,
        "plain_ms": plain_ms,
        "seal_ms": sealed - session["answer_ms"],
        "ratio": sealed / plain_ms,
        "newest_plain_ms": newest_plain,
        "newest_seal_ms": newest_sealed - session["answer_ms"],
        "newest_ratio": newest_sealed / newest_plain,
        "peak_mb": peak_mb,
    }


def measure_session(items: list[Item]) -> tuple[bytes, dict[str, float]]:
    missing = max(1, int(len(items) * DIFFERENCE / 2))
    theirs = SealedVector.seal(items[:-missing])
    initiator = Initiator(SealedVector.seal(items[missing:]), FRAME_LIMIT)
    responder = Responder(theirs, FRAME_LIMIT)
    opening = initiator.initiate()
    rounds, size = sync(initiator, responder)
    return opening, {
        "answer_ms": milliseconds(lambda: responder.reconcile(opening)),
        "sync_ms": milliseconds(lambda: sync(initiator, responder)),
        "rounds": rounds,
        "bytes": size,
        "snapshot_ms": milliseconds(lambda: SealedVector.from_bytes(theirs.to_bytes())),
    }


def peak_of_another_process(count: int) -> float:
    command = [sys.executable, __file__, "--peak", str(count)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def peak(count: int) -> float:
    vector = SealedVector.seal(stream(count))
    Responder(vector, FRAME_LIMIT).reconcile(Initiator(vector).initiate())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def row(values: list[str]) -> str:
    return " ".join(value.rjust(12) for value in values)


def shown(value: float) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--json", type=Path, help="write the results there as well")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak))
        return
    # First, while this process is small: what one starts begins with its parent's peak.
    peaks = [peak_of_another_process(size) for size in options.sizes]
    print(row(list(COLUMNS.values())))
    results = []
    for size, peak_mb in zip(options.sizes, peaks, strict=True):
        results.append(measure(size, peak_mb))
        print(row([shown(results[-1][name]) for name in COLUMNS]), flush=True)
    print(json.dumps(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
