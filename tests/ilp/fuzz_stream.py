"""Mutated STREAM packets against the receiver: `python -m tests.ilp.fuzz_stream 1000000`.

Whatever arrives, the receiver answers with a well-formed packet: a Fulfill only where the condition
is the connection's and the minimum is met, with the amount that arrived in encrypted data.
"""

import random
import resource
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "layers/farthing/python"))

from farthing.ilp import packet, stream
from farthing.ilp.condition import condition_of
from farthing.ilp.oer import InvalidPacket
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.ilp.stream import NONCE_LENGTH, TAG_LENGTH, StreamPacket, keys_of
from farthing.ilp.stream_frames import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionDataBlocked,
    ConnectionMaxData,
    ConnectionMaxStreamId,
    ConnectionNewAddress,
    ConnectionStreamIdBlocked,
    Frame,
    StreamClose,
    StreamData,
    StreamDataBlocked,
    StreamMaxData,
    StreamMaxMoney,
    StreamMoney,
    StreamMoneyBlocked,
    StreamReceipt,
)
from farthing.ilp.stream_receiver import Asset, Limits, StreamPayment, receive

SECRET = bytes(range(32))
ADDRESS = "g.farthing.test"
EXPIRY = datetime(2030, 1, 1, tzinfo=UTC)
ASSET = Asset("USD", 9)
LIMITS = Limits(packet_amount=2**40)
SPECIAL = [0x00, 0x01, 0x02, 0x07, 0x08, 0x09, 0x10, 0x11, 0x17, 0x18, 0x7F, 0x80, 0x81, 0x82, 0xFF]
TEXTS = ["", "private.alice", "zu wenig: \u00e4", "m" * 130]


def some_frame(rng: random.Random) -> Frame:
    number = rng.choice([0, 1, 2, 20, 21, 127, 255, 256, rng.getrandbits(64), 2**64 - 1])
    stream_id = rng.choice([1, 1, 2, 3, 20, 21, number])
    text = rng.choice(TEXTS)
    octets = rng.randbytes(rng.choice([0, 1, 58, 127, 128, 300]))
    return rng.choice(
        [
            ConnectionClose(rng.randrange(256), text),
            ConnectionNewAddress(text),
            ConnectionMaxData(number),
            ConnectionDataBlocked(number),
            ConnectionMaxStreamId(number),
            ConnectionStreamIdBlocked(number),
            ConnectionAssetDetails(text, rng.randrange(256)),
            StreamClose(stream_id, rng.randrange(256), text),
            StreamMoney(stream_id, number),
            StreamMoney(stream_id, 1),
            StreamMaxMoney(stream_id, number, rng.getrandbits(20)),
            StreamMoneyBlocked(stream_id, number, rng.getrandbits(20)),
            StreamData(stream_id, number, octets),
            StreamMaxData(stream_id, number),
            StreamDataBlocked(stream_id, number),
            StreamReceipt(stream_id, octets),
        ]
    )


def some_packet(rng: random.Random) -> StreamPacket:
    return StreamPacket(
        sequence=rng.choice([0, 1, 2, rng.getrandbits(64)]),
        ilp_type=rng.choice([12] * 18 + [13, 14]),
        amount=rng.choice([0, 0, 1, 500, 1000, rng.getrandbits(64)]),
        frames=tuple(some_frame(rng) for _ in range(rng.choice([0, 1, 1, 2, 3, 8]))),
    )


def mutate(rng: random.Random, octets: bytes) -> bytes:
    at = rng.randrange(len(octets) + 1)
    until = min(len(octets), at + rng.choice([0, 1, 1, 2, 8, 32]))
    match rng.randrange(6):
        case 0:
            return octets[:at] + bytes([rng.choice(SPECIAL)]) + octets[at + 1 :]
        case 1:
            changed = bytearray(octets or b"\x00")
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 2:
            return octets[:at] + octets[until:]
        case 3:
            return octets[:at] + rng.randbytes(rng.choice([1, 2, 9])) + octets[at:]
        case 4:
            return octets[:until] + octets[at:until] + octets[until:]
        case _:
            return octets[:at]


def encrypt(plain: bytes, nonce: bytes) -> bytes:
    sealed = keys_of(SECRET).cipher.encrypt(nonce, plain, None)
    return nonce + sealed[-TAG_LENGTH:] + sealed[:-TAG_LENGTH]


def some_prepare(rng: random.Random) -> Prepare:
    plain = stream.encode(some_packet(rng))
    # Most mutations go below the encryption, where they are not simply refused.
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        plain = mutate(rng, plain)
    data = encrypt(plain[:32000], rng.randbytes(NONCE_LENGTH))
    condition = condition_of(keys_of(SECRET).fulfil(data))
    if rng.random() < 0.1:
        data = mutate(rng, data)
    if rng.random() < 0.2:
        condition = rng.randbytes(32)
    amount = rng.choice([0, 1, 999, 1000, 10**6, 2**41, rng.getrandbits(64)])
    return Prepare(amount, EXPIRY, condition, ADDRESS, data)


def check(prepare: Prepare) -> str:
    """The outcome of one Prepare; an AssertionError where the answer is not well-formed."""
    decision = receive(prepare, secret=SECRET, address=ADDRESS, asset=ASSET, limits=LIMITS)
    reply: Fulfill | Reject
    if isinstance(decision, StreamPayment):
        assert decision.amount == prepare.amount <= LIMITS.packet_amount
        assert stream_request(prepare).amount <= prepare.amount
        check_reply(prepare, decision.decline("closed"))
        reply = decision.fulfill()
        assert condition_of(reply.fulfillment) == prepare.condition
    else:
        reply = decision
    check_reply(prepare, reply)
    return "Fulfill" if isinstance(reply, Fulfill) else f"{reply.code} {reply.message[:45]}"


def check_reply(prepare: Prepare, reply: Fulfill | Reject) -> None:
    assert packet.decode(packet.encode(reply)) == reply
    if isinstance(reply, Fulfill) or reply.code == "F99":
        request, answer = stream_request(prepare), keys_of(SECRET).open(reply.data)
        assert answer.sequence == request.sequence
        assert answer.ilp_type == (13 if isinstance(reply, Fulfill) else 14)
        assert answer.amount == prepare.amount
        assert len(reply.data) < 1024
    elif reply.code == "F08":
        assert prepare.amount > LIMITS.packet_amount and len(reply.data) == 16
    elif reply.code == "F06":
        assert not decodes(prepare) and not reply.data
    else:
        assert reply.code == "F00" and stream_request(prepare).ilp_type != 12


def stream_request(prepare: Prepare) -> StreamPacket:
    return keys_of(SECRET).open(prepare.data)


def decodes(prepare: Prepare) -> bool:
    try:
        stream_request(prepare)
    except InvalidPacket:
        return False
    return True


def fuzz(n: int, seed: int = 0) -> Counter[str]:
    rng = random.Random(seed)
    return Counter(check(some_prepare(rng)) for _ in range(n))


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    outcomes: Counter[str] = Counter()
    start = time.perf_counter()
    warm = 0
    for done in range(0, count, 10_000):
        outcomes += fuzz(min(10_000, count - done), seed=done)
        warm = warm or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - warm
    for outcome, times in outcomes.most_common(30):
        print(f"{times:>9}  {outcome}")
    print(
        f"{count} packets in {seconds:.1f} s, only well-formed replies; memory grew by {grown} KB"
    )
