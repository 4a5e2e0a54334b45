"""NIP-19 and NIP-98 against npm `nostr-tools`."""

import json
import random
import time
from typing import Any

import pytest

from farthing.nostr.events import public_key_of
from farthing.nostr.http_auth import InvalidHttpAuth, authorized_key
from farthing.nostr.nip19 import (
    Entity,
    InvalidNip19,
    Naddr,
    Nevent,
    Note,
    Nprofile,
    Npub,
    Nsec,
    decode,
    encode,
)
from tests.interop.node import needs, run_lines

pytestmark = needs("nostr-tools")

SECRET = b"\x05" * 32
URL = "https://relay.example/v1/events?x=1"


def entities(n: int) -> list[Entity]:
    rng = random.Random(1)

    def key() -> str:
        return rng.randbytes(32).hex()

    def some() -> Entity:
        relays = tuple(rng.sample(["wss://r.x.com", "wss://djbas.sadkb.com", "ws://a/"], 2))
        relays = rng.choice([(), relays])
        kind = rng.choice([0, 1, 255, 256, 30023, 65535])
        return rng.choice(
            [
                Npub(key()),
                Nsec(key()),
                Note(key()),
                Nprofile(key(), relays),
                Nevent(key(), relays, rng.choice([None, key()]), rng.choice([None, kind])),
                Naddr(rng.choice(["", "a b", "ä" * 60]), key(), kind, relays),
            ]
        )

    return [some() for _ in range(n)]


def as_json(entity: Entity) -> dict[str, Any]:
    match entity:
        case Npub(value) | Nsec(value) | Note(value):
            data: Any = value
        case Nprofile(pubkey, relays):
            data = {"pubkey": pubkey, "relays": list(relays)}
        case Nevent(id, relays, author, kind):
            data = {"id": id, "relays": list(relays), "author": author, "kind": kind}
        case Naddr(identifier, pubkey, kind, relays):
            data = {
                "identifier": identifier,
                "pubkey": pubkey,
                "kind": kind,
                "relays": list(relays),
            }
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if value is not None}
    return {"type": type(entity).__name__.lower(), "data": data}


def test_they_read_what_we_write() -> None:
    written = entities(300)
    answers = run_lines(
        "nostr_oracle.mjs", [{"op": "decode", "text": encode(each)} for each in written]
    )
    assert answers == [as_json(each) for each in written]


def test_we_read_what_they_write() -> None:
    written = entities(300)
    answers = run_lines("nostr_oracle.mjs", [{"op": "encode"} | as_json(each) for each in written])
    assert [decode(answer["text"]) for answer in answers] == written


def test_both_refuse_what_was_mistyped() -> None:
    rng = random.Random(2)
    mistyped = []
    for text in map(encode, entities(300)):
        at = rng.randrange(len(text))
        mistyped.append(text[:at] + rng.choice("qpzry9x8b1QP") + text[at + 1 :])
    answers = run_lines("nostr_oracle.mjs", [{"op": "decode", "text": each} for each in mistyped])
    for text, answer in zip(mistyped, answers, strict=True):
        assert refuses(text) == ("error" in answer), text


def refuses(text: str) -> bool:
    try:
        decode(text)
    except InvalidNip19:
        return True
    return False


def test_their_authorization_is_taken_and_bound_to_the_body() -> None:
    body = {"kind": 1, "content": "gm"}
    octets = json.dumps(body, separators=(",", ":")).encode()
    asked = {"op": "authorize", "secretKey": SECRET.hex(), "url": URL}
    reading, writing = run_lines(
        "nostr_oracle.mjs",
        [asked | {"method": "get"}, asked | {"method": "post", "payload": body}],
    )
    now = int(time.time())

    read = authorized_key(reading["header"], url=URL, method="GET", body=b"", now=now)
    written = authorized_key(writing["header"], url=URL, method="POST", body=octets, now=now)

    assert read == written == public_key_of(SECRET)
    with pytest.raises(InvalidHttpAuth):
        authorized_key(writing["header"], url=URL, method="POST", body=octets + b" ", now=now)
