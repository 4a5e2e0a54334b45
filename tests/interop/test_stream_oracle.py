"""STREAM against npm: both codecs write and read the same, and both receivers decide the same.

The receiver is `@interledger/stream-receiver`; the codec that of `ilp-protocol-stream`, which that
and `@interledger/pay` carry.
"""

import random
from dataclasses import fields, replace
from typing import Any

from farthing.ilp import packet, stream
from farthing.ilp.condition import condition_of
from farthing.ilp.oer import InvalidPacket
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.ilp.stream import NONCE_LENGTH, TAG_LENGTH, StreamPacket, keys_of
from farthing.ilp.stream_frames import ConnectionAssetDetails, ConnectionClose, Frame
from farthing.ilp.stream_receiver import Asset, StreamPayment, receive
from tests.ilp.fuzz_stream import EXPIRY, mutate, some_packet
from tests.interop.node import needs, run_lines

pytestmark = needs("@interledger/stream-receiver", "ilp-protocol-stream", "ilp-packet", "long")

ADDRESS = "g.farthing.test"
SERVER_SECRET = bytes(range(32)).hex()
ASSET = {"code": "USD", "scale": 9}

# What their codec takes and ours refuses, by the reason that ours gives.
TOO_LENIENT = (
    "trailing bytes",  # of a frame
    "non-canonical integer",  # leading zeros
    "non-canonical length",
    "text is not UTF-8",  # Buffer puts U+FFFD there
    "expected a length in 1 to 8 octets",
)


def ask(questions: list[dict]) -> list[dict]:
    answers = run_lines("stream_oracle.cjs", questions)
    assert len(answers) == len(questions)
    return answers


def packets(n: int, seed: int) -> list[StreamPacket]:
    rng = random.Random(seed)
    return [some_packet(rng) for _ in range(n)]


def as_json(one: StreamPacket) -> dict:
    return {
        "sequence": str(one.sequence),
        "type": one.ilp_type,
        "amount": str(one.amount),
        "frames": [frame_as_json(frame) for frame in one.frames],
    }


def frame_as_json(frame: Frame) -> dict:
    answer: dict[str, Any] = {"name": type(frame).__name__}
    for each in fields(frame):
        value = getattr(frame, each.name)
        if isinstance(value, bytes):
            value = value.hex()
        elif isinstance(value, int) and each.name not in ("error_code", "source_asset_scale"):
            value = str(value)
        answer[their_name(each.name)] = value
    return answer


def their_name(name: str) -> str:
    if name == "source_address":
        return "sourceAccount"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def test_both_write_the_same() -> None:
    written = packets(1500, 1)
    answers = ask([{"op": "encode", "packet": as_json(one)} for one in written])
    assert [answer.get("hex") for answer in answers] == [
        stream.encode(one).hex() for one in written
    ]


def test_both_read_the_same() -> None:
    written = packets(1500, 2)
    answers = ask([{"op": "decode", "hex": stream.encode(one).hex()} for one in written])
    assert answers == [as_json(one) for one in written]


def test_both_agree_about_mutated_packets() -> None:
    rng = random.Random(3)
    mutated = [mutate(rng, stream.encode(one)) for one in packets(4000, 3)]
    answers = ask([{"op": "decode", "hex": octets.hex()} for octets in mutated])
    accepted = refused = 0
    for octets, answer in zip(mutated, answers, strict=True):
        read = attempt(octets)
        if isinstance(read, StreamPacket):
            accepted += 1
            assert answer == as_json(read), octets.hex()
        else:
            refused += 1
            assert "error" in answer or is_stricter(read), (read, octets.hex())
    assert accepted > 300 and refused > 1000


def attempt(octets: bytes) -> StreamPacket | InvalidPacket:
    try:
        return stream.decode(octets)
    except InvalidPacket as reason:
        return reason


def is_stricter(reason: InvalidPacket) -> bool:
    return any(known in str(reason) for known in TOO_LENIENT)


def prepares(secret: bytes, destination: str) -> list[Prepare]:
    """Payments, probes, closings, mutations: on one connection of theirs."""
    rng = random.Random(4)
    keys = keys_of(secret)
    made = []
    for one in packets(1500, 4):
        plain = stream.encode(one)
        if rng.random() < 0.1:
            plain = mutate(rng, plain)
        nonce = rng.randbytes(NONCE_LENGTH)
        sealed = keys.cipher.encrypt(nonce, plain, None)
        data = nonce + sealed[-TAG_LENGTH:] + sealed[:-TAG_LENGTH]
        condition = condition_of(keys.fulfil(data))
        if rng.random() < 0.2:
            condition = rng.randbytes(32)
        if rng.random() < 0.1:
            data = mutate(rng, data)
        amount = rng.choice([0, 1, 499, 1000, rng.getrandbits(64)])
        made.append(Prepare(amount, EXPIRY, condition, destination, data))
    return made


def test_both_receivers_decide_the_same() -> None:
    server = {"secret": SERVER_SECRET, "address": ADDRESS}
    [connection] = ask([{"op": "connect", **server, "asset": ASSET}])
    secret = bytes.fromhex(connection["secret"])
    sent = prepares(secret, connection["destination"])
    answers = ask(
        [{"op": "receive", **server, "prepare": packet.encode(one).hex()} for one in sent]
    )
    seen = set()
    for one, answer in zip(sent, answers, strict=True):
        theirs = packet.decode_reply(bytes.fromhex(answer["reply"]))
        ours = our_reply(one, secret)
        if lenient(one, secret):
            continue
        seen.add(outcome(theirs, secret)[0])
        assert outcome(ours, secret) == outcome(theirs, secret), packet.encode(one).hex()
    assert seen == {"fulfill", "F00", "F06", "F99"}


def our_reply(sent: Prepare, secret: bytes) -> Fulfill | Reject:
    asset = Asset(str(ASSET["code"]), 9)
    decision = receive(sent, secret=secret, address=ADDRESS, asset=asset)
    return decision.fulfill() if isinstance(decision, StreamPayment) else decision


def lenient(sent: Prepare, secret: bytes) -> bool:
    """Whether only their codec reads the packet."""
    try:
        keys_of(secret).open(sent.data)
    except stream.NotDecryptable:
        return False
    except InvalidPacket as reason:
        return is_stricter(reason)
    return False


def outcome(reply: Fulfill | Reject, secret: bytes) -> tuple:
    """What matters to a sender: fulfilled or why not, what arrived, closed or not."""
    kind = reply.fulfillment if isinstance(reply, Fulfill) else b""
    code = "fulfill" if isinstance(reply, Fulfill) else reply.code
    if not reply.data:
        return code, None, kind
    inner = keys_of(secret).open(reply.data)
    closed = [frame for frame in inner.frames if isinstance(frame, ConnectionClose)]
    return code, bool(closed), kind, replace(inner, frames=tuple(closed))


def test_both_tell_their_asset_once_asked() -> None:
    server = {"secret": SERVER_SECRET, "address": ADDRESS}
    [connection] = ask([{"op": "connect", **server, "asset": ASSET}])
    secret = bytes.fromhex(connection["secret"])
    # As `@interledger/pay` asks: an empty address, and a condition that nobody fulfils.
    plain = bytes.fromhex("010c0102010001" + "01" + "020100")
    data = keys_of(secret).seal(stream.decode(plain), bytes(12))
    sent = Prepare(0, EXPIRY, bytes(32), connection["destination"], data)

    [answer] = ask([{"op": "receive", **server, "prepare": packet.encode(sent).hex()}])

    for reply in (packet.decode(bytes.fromhex(answer["reply"])), our_reply(sent, secret)):
        assert isinstance(reply, Reject) and reply.code == "F99"
        assert ConnectionAssetDetails("USD", 9) in keys_of(secret).open(reply.data).frames
