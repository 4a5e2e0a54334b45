"""Mutated packets straight into the connector: `python tests/ilp/fuzz_connector.py 1000000`.

Whatever comes in, a well-formed Fulfill or Reject of ours goes out, nothing is raised, a Fulfill is
of an event that is stored, and memory stays flat.
"""

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / "layers/farthing/python"), str(root)]

from farthing.agent.audit import audit
from farthing.connector import steps as connector
from farthing.context import Agent
from farthing.ilp.condition import condition_of, interop_fulfillments
from farthing.ilp.oer import length
from farthing.ilp.packet import DATA_MAX, Fulfill, Prepare, decode_reply, encode
from farthing.store.sqlite import SqliteEngine
from tests.ilp.paying import PAYER, expiry, packet, paid_agent
from tests.purses.filling import fill_packet, stream_packet
from tests.relay.world import START, Clock, signed

SPECIAL = [0x00, 0x0A, 0x0C, 0x0D, 0x22, 0x2D, 0x30, 0x3A, 0x5B, 0x7B, 0x7F, 0x80, 0x82, 0xFF]
# What has a meaning in TOON, in numbers, or to a signature check.
SNIPPETS = [
    b"\n", b" ", b'"', b"\\", b": ", b"[3]: a,b,c", b"[2]{a,b}:", b"- ", b"null", b"true", b"-1",
    b"1e3", b"9" * 30, b"\x00", b"\xed\xa0\x80", b"\xf0\x9f\x92\xb8", b"tags[0]:", b"kind: 5",
    b"id: " + b"a" * 64, b"created_at: 99999999999", b"sig: " + b"0" * 128,
]  # fmt: skip


class Packets:
    """Packets that are right, of a few events, and ways to make them wrong."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self._random = random.Random(seed)
        self._agent = agent
        kinds = [1, 1, 1, 7, 0, 3, 5, 10002, 20001, 30023]
        self._right = [self._packet(number, kinds[number % len(kinds)]) for number in range(60)]
        late = expiry(agent, 3000)
        for number in range(10):
            data = number.to_bytes(16)
            self._right += [
                fill_packet(agent, 100, data, expires_at=late),
                stream_packet(agent, 100, sequence=number, expires_at=late),
            ]

    def _packet(self, number: int, kind: int) -> Prepare:
        tags = [["t", f"topic {number}"], ["d", "x"], ["e", f"{number:064x}"]][: number % 4]
        content = ["", "gm", 'quotes " and\nlines', "\U0001f4b8" * 20, "x" * 2000][number % 5]
        event = signed(kind=kind, content=content, created_at=START + number, tags=tags)
        return packet(self._agent, event, expires_at=expiry(self._agent, 3000))

    def octets(self, n: int) -> Iterator[bytes]:
        ways: list[Callable[[Prepare], bytes]] = [
            encode,
            self._mutate_packet,
            self._mutate_packet,
            self._mutate_body,
            self._mutate_data,
            self._mutate_data,
            self._swap_fields,
            self._change_field,
            self._garbage,
        ]
        for _ in range(n):
            yield self._random.choice(ways)(self._random.choice(self._right))

    def _mutate(self, octets: bytes) -> bytes:
        choose = self._random
        for _ in range(choose.choice([1, 1, 1, 2, 5])):
            at = choose.randrange(len(octets) + 1)
            until = min(len(octets), at + choose.choice([1, 1, 2, 8, 64]))
            match choose.randrange(7):
                case 0:  # a bit turns
                    changed = bytearray(octets or b"\x00")
                    changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
                    octets = bytes(changed)
                case 1:
                    octets = octets[:at] + bytes([choose.choice(SPECIAL)]) + octets[at + 1 :]
                case 2:
                    octets = octets[:at] + octets[until:]
                case 3:
                    octets = octets[:at] + choose.choice(SNIPPETS) + octets[at:]
                case 4:
                    octets = octets[:until] + octets[at:until] + octets[until:]
                case 5:
                    octets = octets[:at] + choose.randbytes(choose.choice([1, 2, 9])) + octets[at:]
                case _:
                    octets = octets[:at]
        return octets

    def _mutate_packet(self, prepare: Prepare) -> bytes:
        return self._mutate(encode(prepare))

    def _mutate_body(self, prepare: Prepare) -> bytes:
        """Inside an envelope that is right."""
        octets = encode(prepare)
        prefix = 2 if octets[1] < 0x80 else 2 + (octets[1] & 0x7F)
        body = self._mutate(octets[prefix:])
        return octets[:1] + length(len(body)) + body

    def _mutate_data(self, prepare: Prepare) -> bytes:
        """Inside a packet that is right, with a condition that we could fulfil."""
        data = self._mutate(prepare.data)[:DATA_MAX]
        condition = condition_of(interop_fulfillments(None, data)[0])
        return encode(replace(prepare, data=data, condition=condition, amount=10**9))

    def _swap_fields(self, prepare: Prepare) -> bytes:
        other = self._random.choice(self._right)
        name = self._random.choice(["amount", "condition", "data"])
        return encode(replace(prepare, **{name: getattr(other, name)}))

    def _change_field(self, prepare: Prepare) -> bytes:
        amount = self._random.choice([0, 1, prepare.amount - 1, prepare.amount + 1, 2**64 - 1])
        away = [prepare.destination + ".x", "g.elsewhere", "peer.config", "self.a", "test1.b"]
        late = expiry(self._agent, self._random.choice([-5, 0, 0.05, 0.1, 10**9]))
        changes: list[dict[str, object]] = [
            {"amount": amount},
            {"destination": self._random.choice(away)},
            {"expires_at": late},
            {"condition": self._random.randbytes(32)},
        ]
        return encode(replace(prepare, **self._random.choice(changes)))  # type: ignore[arg-type]

    def _garbage(self, _: Prepare) -> bytes:
        return self._random.randbytes(self._random.randrange(200))


def resident_kb() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) if found else 0


def fuzz(
    n: int, folder: Path, seed: int = 0, report: Callable[[int], None] = lambda _: None
) -> Counter[str]:
    """Send `n` packets and count the replies. Whatever is not as it must be raises."""
    clock = Clock()
    engine = SqliteEngine(folder, clock=clock)
    agent = paid_agent(engine, clock, packets_per_minute=10**12)
    outcomes: Counter[str] = Counter()
    own = agent.settings.own_ilp_address
    for number, octets in enumerate(Packets(agent, seed).octets(n)):
        if number % max(1, n // 10) == 0:
            report(number)
        reply = decode_reply(connector.handle(agent, PAYER, octets))
        if isinstance(reply, Fulfill):
            outcomes["Fulfill"] += 1
            continue
        assert reply.triggered_by == own, octets.hex()
        assert reply.code != "T00", octets.hex()
        outcomes[f"{reply.code} {reply.message.partition(own)[0][:50]}"] += 1
    assert audit(agent).differences == []
    engine.close()
    return outcomes


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    start = time.perf_counter()

    def report(number: int) -> None:
        seconds = time.perf_counter() - start
        print(f"{number:>9} packets  {seconds:7.1f} s  {resident_kb() / 1024:7.1f} MiB", flush=True)

    memory = Path("/dev/shm")  # where there is one: waiting for a disk finds nothing
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        outcomes = fuzz(count, Path(folder), int((sys.argv[2:] or ["0"])[0]), report)
    report(count)
    for outcome, times in outcomes.most_common(30):
        print(f"{times:>9}  {outcome}")
    print(f"{count} packets, only well-formed replies, no exception, no difference in the books")


if __name__ == "__main__":
    main()
