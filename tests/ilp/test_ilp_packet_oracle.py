"""The codec against npm `ilp-packet`: both write the same bytes and read the same packets.

Runs where the package is installed: `npm install --prefix .cache ilp-packet@3.1.3` in the
repository, or FARTHING_NODE_MODULES naming a node_modules directory that has it.
"""

import json
import os
import random
import runpy
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from farthing.ilp.packet import Fulfill, InvalidPacket, Prepare, Reject, decode, encode

HERE = Path(__file__).resolve().parent
NODE_MODULES = Path(
    os.environ.get("FARTHING_NODE_MODULES") or HERE.parents[1] / ".cache" / "node_modules"
).absolute()
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (NODE_MODULES / "ilp-packet").is_dir(),
        reason="ilp-packet is in neither FARTHING_NODE_MODULES nor .cache/node_modules",
    ),
]

FUZZ = runpy.run_path(str(HERE / "fuzz_packet.py"))

# What ilp-packet takes and the facts refuse, by the reason that our decoder gives.
TOO_LENIENT = (
    "trailing bytes",
    "expected an expiry that is a valid date and time",  # Date.UTC lets month 13 run over
    "expected an expiry of digits",  # and Number takes blanks and signs
    "at most 32767",  # data
    "at most 8191",  # message
    "message is not UTF-8",  # Buffer puts U+FFFD there
    "text is not ASCII",  # Buffer drops the high bit
)


def ask(questions: list[dict]) -> list[dict]:
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run(
        [NODE or "node", str(HERE / "oracle.js")],
        input=lines.encode(),
        env=os.environ | {"NODE_PATH": str(NODE_MODULES)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(answers) == len(questions)
    return answers


def as_json(packet: Prepare | Fulfill | Reject) -> dict:
    match packet:
        case Prepare():
            moment = packet.expires_at.isoformat(timespec="milliseconds")
            return {
                "type": 12,
                "amount": str(packet.amount),
                "expiresAt": moment.replace("+00:00", "Z"),
                "condition": packet.condition.hex(),
                "destination": packet.destination,
                "data": packet.data.hex(),
            }
        case Fulfill():
            return {
                "type": 13,
                "fulfillment": packet.fulfillment.hex(),
                "data": packet.data.hex(),
            }
        case Reject():
            return {
                "type": 14,
                "code": packet.code,
                "triggeredBy": packet.triggered_by,
                "message": packet.message,
                "data": packet.data.hex(),
            }


def valid_packets() -> list[Prepare | Fulfill | Reject]:
    rng = random.Random(7)
    moment = datetime(2030, 1, 2, 3, 4, 5, 6000, UTC)
    edges: list[Prepare | Fulfill | Reject] = [
        Prepare(2**64 - 1, moment, bytes(32), "g." + "a" * 1021, bytes(32767)),
        Fulfill(b"\xff" * 32, bytes(32767)),
        Reject("F08", "g." + "a" * 1021, "ä" * 4095, bytes(32767)),
        Reject("xyz", "", "", b""),
    ]
    edges += [Fulfill(bytes(32), bytes(size)) for size in (0, 94, 95, 127, 128, 222, 255, 256)]
    return edges + [FUZZ["valid_packet"](rng) for _ in range(1500)]


def refusal(octets: bytes) -> str | None:
    try:
        decode(octets)
    except InvalidPacket as reason:
        return str(reason)
    return None


def test_they_read_what_we_write() -> None:
    packets = valid_packets()
    answers = ask([{"op": "decode", "hex": encode(packet).hex()} for packet in packets])
    assert answers == [as_json(packet) for packet in packets]


def test_they_write_what_we_write_and_we_read_it() -> None:
    packets = valid_packets()
    answers = ask([{"op": "encode", "packet": as_json(packet)} for packet in packets])
    assert [answer.get("hex") for answer in answers] == [encode(packet).hex() for packet in packets]
    assert [decode(bytes.fromhex(answer["hex"])) for answer in answers] == packets


def test_both_agree_about_mutated_packets() -> None:
    octets = list(FUZZ["inputs"](6000, 11))
    answers = ask([{"op": "decode", "hex": one.hex()} for one in octets])
    accepted = refused = 0
    for one, answer in zip(octets, answers, strict=True):
        reason = refusal(one)
        if reason is None:
            packet = decode(one)
            assert answer == as_json(packet) or is_misread_by_them(packet), one.hex()
            accepted += 1
        elif "error" in answer:
            refused += 1
        else:
            assert any(known in reason for known in TOO_LENIENT), (reason, one.hex())
    assert accepted > 300 and refused > 1000


def is_misread_by_them(packet: Prepare | Fulfill | Reject) -> bool:
    """Date.UTC takes the year 30 for 1930, and a date of 0 counts as none."""
    return isinstance(packet, Prepare) and (
        packet.expires_at.year < 100 or packet.expires_at.timestamp() == 0
    )


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (encode(Fulfill(bytes(32))) + b"\x00", "trailing bytes"),
        (
            encode(Prepare(1, datetime(2030, 12, 1, tzinfo=UTC), bytes(32), "g.a", b"")).replace(
                b"20301201", b"20301301"
            ),
            "expected an expiry that is a valid date and time",
        ),
        (b"\x0d\x82\x80\x23" + bytes(32) + b"\x82\x80\x00" + bytes(32768), "at most 32767"),
    ],
    ids=["trailing bytes", "month 13", "data over 32767"],
)
def test_we_refuse_some_octets_that_ilp_packet_takes(octets: bytes, reason: str) -> None:
    assert reason in (refusal(octets) or "")
    assert "error" not in ask([{"op": "decode", "hex": octets.hex()}])[0]
