"""Mutated envelopes against the decoder: `python -m tests.btp_nips.fuzz 100000`.

Whatever comes in, the decoder refuses it as the specification says, with JSON in the reject, or
gives a message that is written and read again as the same message.
"""

import copy
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "layers/farthing/python"))

from farthing.btp_nips.codec import TooLarge, decode, encode, write
from farthing.btp_nips.errors import (
    FilterRefused,
    InvalidBody,
    InvalidHeader,
    MessageRefused,
    UnexpectedMessage,
)
from farthing.btp_nips.messages import (
    Auth,
    Ceilings,
    Closed,
    Count,
    Delivery,
    Eose,
    EventMessage,
    Message,
    Metadata,
    Notice,
    Ok,
    Payment,
    Propagation,
    Purpose,
    Req,
)
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import live, stored
from farthing.nostr.events import sign_event
from farthing.nostr.filters import parse_filter
from tests.btp_nips.vectors import CLIENT, CLIENT_SECRET, CLOSE, REQ

STRANGE: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**63,
        1.5,
        1e300,
        "",
        "0",
        "01",
        "x" * 70,
        "\u0000",
        "\U0001f4b8",
    ),
    *([], {}, [[]], [{}], {"a": 1}, CLIENT, "g.alice", "push", "free", "REQ", [CLIENT], ["x"] * 20),
]
SPECIAL = b'\x00\x01\x02\x09\x0a{}[],:"\\0-e\x7f\x80\xc3\xff'


def messages() -> list[Message]:
    payment = Payment(1010, "USD", Purpose.SUBSCRIPTION, Model.STREAMING, Ceilings(1000, 10))
    plain = Metadata(1733414400, sender=CLIENT, position=live(7))
    full = Metadata(
        1733414400,
        ttl=3600,
        priority=128,
        sender=CLIENT,
        delivery=Delivery.PULL,
        reply_to="g.alice.phone",
        pull=50,
        after=stored(12),
        window=10,
        propagate=Propagation(3, 900),
        path=(CLIENT,),
        origin=CLIENT,
    )
    filters = tuple(
        map(
            parse_filter,
            [
                {"kinds": [1, 30023], "authors": [CLIENT], "#t": ["x", "y"], "limit": 100},
                {"ids": [CLIENT], "since": 1, "until": 2},
            ],
        )
    )
    event = sign_event(CLIENT_SECRET, kind=1, content="gm", created_at=5, tags=[["t", "x"]])
    return [
        decode(REQ),
        decode(CLOSE),
        Req("sub-1", filters, payment, full, "AQID"),
        Count("sub-1", filters, payment, full),
        EventMessage(event, payment, plain, "sub-1"),
        EventMessage(event, payment, plain),
        Notice("[relay_error] x", payment, plain, "sub-1"),
        Eose("sub-1", payment, plain, 3, "AQID", 70),
        Ok(CLIENT, True, "", payment, plain),
        Auth("sub-1", bytes(32), payment, plain),
        Closed("sub-1", "Subscription TTL expired", payment, plain),
    ]


def strange(dice: random.Random) -> Any:
    return copy.deepcopy(dice.choice(STRANGE))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def with_strange_values(dice: random.Random, body: bytes) -> bytes:
    value = orjson.loads(body)
    for _ in range(dice.randrange(1, 3)):
        container, key = dice.choice(list(places(value)))
        match dice.randrange(4):
            case 0 if isinstance(container, dict):
                del container[key]
            case 1 if isinstance(container, dict):
                container[dice.choice(["x", "", "#e", "search", "ttl", "paymentModel"])] = strange(
                    dice
                )
            case _:
                container[key] = strange(dice)
        if not value:
            break
    return orjson.dumps(value)


def with_strange_octets(dice: random.Random, octets: bytes) -> bytes:
    at = dice.randrange(len(octets) + 1)
    until = min(len(octets), at + dice.choice([0, 1, 1, 2, 8, 32]))
    match dice.randrange(5):
        case 0:
            return octets[:at] + bytes([dice.choice(SPECIAL)]) + octets[at + 1 :]
        case 1:
            return octets[:at] + octets[until:]
        case 2:
            return octets[:at] + dice.randbytes(dice.choice([1, 2, 9])) + octets[at:]
        case 3:
            return octets[:until] + octets[at:until] + octets[until:]
        case _:
            return octets[:at]


def inputs(n: int, seed: int) -> Iterator[bytes]:
    dice = random.Random(seed)
    written = [write(message) for message in messages()]
    for _ in range(n):
        kind, body = dice.choice(written)
        chance = dice.random()
        if chance < 0.05:
            yield dice.randbytes(dice.randrange(60))
        elif chance < 0.65:  # the JSON is well formed, its values are not
            body = with_strange_values(dice, body)
            yield pack(">BBH", 1, kind, len(body)) + body
        elif chance < 0.85:  # the header is right, the JSON is not
            body = with_strange_octets(dice, body)
            yield pack(">BBH", 1, kind, len(body)) + body
        else:
            yield with_strange_octets(dice, pack(">BBH", 1, kind, len(body)) + body)


def fuzz(n: int, seed: int = 0) -> Counter[str]:
    """Feed `n` inputs and count the outcomes; any exception that is not a refusal gets out."""
    outcomes: Counter[str] = Counter()
    for octets in inputs(n, seed):
        try:
            message = decode(octets)
        except (InvalidHeader, InvalidBody, FilterRefused, UnexpectedMessage) as refused:
            check_refusal(refused)
            outcomes[f"{refused.code} {refused.error}"] += 1
            continue
        try:
            assert decode(encode(message)) == message, octets
        except TooLarge:
            outcomes["too large when written again"] += 1
        outcomes[type(message).__name__] += 1
    return outcomes


def check_refusal(refused: MessageRefused) -> None:
    assert len(refused.message.encode()) < 400
    fields = orjson.loads(refused.data)
    assert fields["error"] == refused.error
    assert fields["message"] == refused.message


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    start = time.perf_counter()
    for outcome, times in fuzz(count, int(sys.argv[2]) if len(sys.argv) > 2 else 0).most_common():
        print(f"{times:>9}  {outcome}")
    print(f"{count} inputs in {time.perf_counter() - start:.1f} s, nothing but refusals")


if __name__ == "__main__":
    main()
