"""Mutated frames, messages and tokens: `python -m tests.aether.fuzz 100000`.

Whatever comes in, the readers may only refuse it with one of Aether's own errors. Nobody signs
anew, so no altered token may grant what the sound one does, unless it says the same.
"""

import json
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "layers/farthing/python"))

from farthing.aether import capabilities, events, frames, messages, policies, toon
from farthing.aether.errors import AetherError
from farthing.aether.frames import MessageType
from tests.aether.known import EVENTS, KEYS, NOW_NS, VECTORS, pubkey

SPECIAL = [0x00, 0x01, 0x04, 0x08, 0x0B, 0x0C, 0x22, 0x30, 0x5B, 0x7B, 0x7D, 0x7F, 0x80, 0xFF]
VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 2**64, "", "0", "x", "\ud800", [], {}, [[]], "f" * 64, [["t", "x"]],
]  # fmt: skip
NOISE_OUTER = [vector["outer_frame"] for vector in VECTORS["noise"]["transport"]]
FRAMES = [
    bytes.fromhex(text)
    for vector in VECTORS["frames"]["messages"]
    for text in (vector["flatbuffer"], vector["prefixed"])
] + [bytes.fromhex(text) for text in (VECTORS["noise"]["message_1_frame"], *NOISE_OUTER)]
TOONS = [
    toon.dumps(events.parse_event(EVENTS[name]["event"]))
    for name in ("immutable", "unicode", "sixteen values")
]
CHAIN: list[Any] = [each["token"] for each in VECTORS["tokens"]["chain"]]


def mutate(dice: random.Random, octets: bytes) -> bytes:
    at = dice.randrange(len(octets) + 1)
    until = min(len(octets), at + dice.choice([0, 1, 1, 4, 32]))
    match dice.randrange(6):
        case 0:  # one octet becomes a special one
            return octets[:at] + bytes([dice.choice(SPECIAL)]) + octets[at + 1 :]
        case 1:  # one bit turns
            changed = bytearray(octets or b"\x00")
            changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
            return bytes(changed)
        case 2:  # some octets go
            return octets[:at] + octets[until:]
        case 3:  # some octets come
            return octets[:at] + dice.randbytes(dice.choice([1, 4, 40])) + octets[at:]
        case 4:  # an offset near the start changes, where the tables lie
            changed = bytearray(octets.ljust(28, b"\x00"))
            changed[dice.randrange(28)] = dice.randrange(256)
            return bytes(changed)
        case _:  # the frame is cut
            return octets[:at]


def mutate_value(dice: random.Random, value: Any) -> Any:
    """The value with one part exchanged, somewhere inside."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        name = dice.choice(sorted(value))
        changed = dict(value)
        if dice.random() < 0.1:
            del changed[name]
        elif dice.random() < 0.1:
            changed[dice.choice(["colour", "max_uses", "ip", "#t"])] = dice.choice(VALUES)
        else:
            changed[name] = mutate_value(dice, value[name])
        return changed
    if isinstance(value, list) and value and dice.random() < 0.85:
        at = dice.randrange(len(value))
        middle = dice.choice([[], [value[at]] * 2, [mutate_value(dice, value[at])]])
        return [*value[:at], *middle, *value[at + 1 :]]
    if isinstance(value, str) and value and dice.random() < 0.7:
        at = dice.randrange(len(value))
        return value[:at] + dice.choice("0af1: ž") + value[at + 1 :]
    return dice.choice(VALUES)


def read_frame(octets: bytes) -> None:
    for frame in (octets, frames.to_text(octets), octets.decode(errors="surrogateescape")):
        try:
            take(messages.read(frame))
        except AetherError:
            continue


def take(message: messages.Message) -> None:
    match message.type:
        case MessageType.HELLO:
            messages.parse_hello(message.body)
        case MessageType.PUBLISH:
            publish = messages.parse_publish(message.body)
            judge_event(publish.event)
            if publish.capability is not None:
                judge_chain(publish.capability)
        case MessageType.SUBSCRIBE:
            messages.parse_subscribe(message.body, max_filters=10)
        case MessageType.UNSUBSCRIBE:
            messages.parse_sub_id(message.body)


def judge_event(value: object) -> None:
    event = events.parse_event(value, max_tags=2500)
    events.check(event, policies.standard(NOW_NS, 60))


def judge_chain(value: object) -> None:
    capabilities.check_chain(
        value,
        owner=KEYS["owner_aether_pubkey"],
        author=pubkey("sub"),
        kind=1,
        now_ns=NOW_NS,
        ip="127.0.0.1",
    )


def one(dice: random.Random) -> str:
    """One attempt, and what came of it. Raises what only a defect raises."""
    kind = dice.choice(["frame", "message", "chain", "toon"])
    try:
        match kind:
            case "frame":
                octets = dice.choice(FRAMES)
                for _ in range(dice.choice([1, 1, 2, 5])):
                    octets = mutate(dice, octets)
                read_frame(octets)
                return "frame read"
            case "message":
                body = json.loads(dice.choice(VECTORS["frames"]["messages"])["json"])
                text = json.dumps(mutate_value(dice, body))
                take(messages.read(text))
            case "chain":
                chain = mutate_value(dice, CHAIN)
                judge_chain(chain)
                assert chain == CHAIN, f"a forged chain was taken: {chain}"
            case "toon":
                event = toon.loads(mutate(dice, dice.choice(TOONS)), max_tags=2500)
                events.check(event, policies.standard(NOW_NS, 60))
    except AetherError as error:
        return f"{kind} {error.code}"
    return f"{kind} taken"


def run(times: int, seed: int) -> Counter[str]:
    dice = random.Random(seed)
    return Counter(one(dice) for _ in range(times))


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    run(1000, seed + 1)  # warm up, so that growth is growth
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    outcomes = run(times, seed)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    for name, count in sorted(outcomes.items()):
        print(f"{count:8} {name}")
    print(f"{times} in {time.monotonic() - started:.1f} s, memory grew by {grown} KiB")


if __name__ == "__main__":
    main()
