"""Mutated packets and garbage against the decoder: `python tests/ilp/fuzz_packet.py 1000000`.

Whatever comes in, the decoder may only refuse it with InvalidPacket or give a packet that encodes
to the very same bytes.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "layers/farthing/python"))

from farthing.ilp.oer import length
from farthing.ilp.packet import (
    Code,
    Fulfill,
    InvalidPacket,
    Prepare,
    Reject,
    decode,
    encode,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ADDRESSES = ["g.alice", "test1.a.b-c", "peer.config", "g." + "x" * 200, "g." + "y" * 1021]
MESSAGES = ["", "no", "zu wenig: \u00e4\u00f6\u00fc", "\U0001f4b8", "m" * 130, "m" * 8191]
SPECIAL = [0x00, 0x01, 0x0C, 0x0D, 0x0E, 0x2E, 0x30, 0x39, 0x7F, 0x80, 0x81, 0x82, 0x88, 0xFF]


def valid_packet(rng: random.Random) -> Prepare | Fulfill | Reject:
    data = rng.randbytes(rng.choice([0, 1, 20, 127, 128, 300]))
    match rng.randrange(3):
        case 0:
            moment = EPOCH + timedelta(milliseconds=rng.randrange(253402300800000))
            amount = rng.choice([0, 1, rng.getrandbits(64), 2**64 - 1])
            return Prepare(amount, moment, rng.randbytes(32), rng.choice(ADDRESSES), data)
        case 1:
            return Fulfill(rng.randbytes(32), data)
        case _:
            code = rng.choice(list(Code))
            return Reject(code, rng.choice(["", *ADDRESSES]), rng.choice(MESSAGES), data)


def mutate(rng: random.Random, octets: bytes) -> bytes:
    at = rng.randrange(len(octets) + 1)
    until = min(len(octets), at + rng.choice([0, 1, 1, 2, 8, 32]))
    match rng.randrange(6):
        case 0:  # one byte becomes a special one
            return octets[:at] + bytes([rng.choice(SPECIAL)]) + octets[at + 1 :]
        case 1:  # one bit turns
            changed = bytearray(octets or b"\x00")
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 2:  # some bytes go
            return octets[:at] + octets[until:]
        case 3:  # some bytes come
            return octets[:at] + rng.randbytes(rng.choice([1, 2, 9])) + octets[at:]
        case 4:  # some bytes come twice
            return octets[:until] + octets[at:until] + octets[until:]
        case _:  # the end is cut off
            return octets[:at]


def inputs(n: int, seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(n):
        if rng.random() < 0.1:
            yield rng.randbytes(rng.randrange(100))
            continue
        octets = encode(valid_packet(rng))
        kind, body = octets[:1], octets[len(octets) - _body_size(octets) :]
        if rng.random() < 0.6:  # mutate inside an envelope that is right
            for _ in range(rng.randrange(1, 4)):
                body = mutate(rng, body)
            yield kind + length(len(body)) + body
        else:
            for _ in range(rng.randrange(1, 4)):
                octets = mutate(rng, octets)
            yield octets


def _body_size(octets: bytes) -> int:
    prefix = 1 if octets[1] < 0x80 else 1 + (octets[1] & 0x7F)
    return len(octets) - 1 - prefix


def fuzz(n: int, seed: int = 0) -> Counter[str]:
    """Feed `n` inputs and count the outcomes; any other exception than InvalidPacket gets out."""
    outcomes: Counter[str] = Counter()
    for octets in inputs(n, seed):
        try:
            packet = decode(octets)
        except InvalidPacket as refusal:
            outcomes[str(refusal)] += 1
            continue
        assert encode(packet) == octets, octets.hex()
        outcomes[type(packet).__name__] += 1
    return outcomes


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    start = time.perf_counter()
    for outcome, times in fuzz(count, int(sys.argv[2]) if len(sys.argv) > 2 else 0).most_common(25):
        print(f"{times:>9}  {outcome}")
    print(f"{count} inputs in {time.perf_counter() - start:.1f} s, nothing but InvalidPacket")
