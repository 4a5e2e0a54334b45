"""The vectors in the docs are what the library and pay.js compute."""

import hmac
import json
from datetime import UTC, datetime

import pytest

from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Prepare, decode_prepare, encode
from farthing.ilp.toon import dumps_event
from farthing.nostr.events import parse_event, public_key_of, verify
from tests.e2e.relay_process import ROOT
from tests.paying.pay_js import PayJs

PAGE = (ROOT / "docs/developers.md").read_text()
BLOCK = PAGE.partition("<!-- vectors -->")[2].partition("<!-- /vectors -->")[0]
VECTORS = json.loads(BLOCK.replace("```json", "").replace("```", ""))
EVENT = parse_event(VECTORS["event"])
MOMENT = datetime(2030, 1, 2, 3, 4, 5, 678000, UTC)


def octets(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name])


def test_keys_and_event_belong_together() -> None:
    verify(EVENT)
    assert EVENT.pubkey == VECTORS["author_pubkey"] == public_key_of(octets("author_secret"))
    assert VECTORS["relay_pubkey"] == public_key_of(octets("relay_secret"))


def test_the_data_is_the_events_toon() -> None:
    assert dumps_event(EVENT) == VECTORS["data"].encode()
    assert len(VECTORS["data"].encode()) == VECTORS["data_bytes"]


@pytest.mark.parametrize("side", ["author", "relay"])
def test_fulfillment_and_condition_by_either_side(side: str) -> None:
    other = {"author": "relay", "relay": "author"}[side]
    data = VECTORS["data"].encode()
    fulfillment = author_fulfillment(octets(f"{side}_secret"), octets(f"{other}_pubkey"), data)
    assert fulfillment == octets("fulfillment")
    assert condition_of(fulfillment) == octets("condition")


def test_the_fulfillment_follows_from_the_shared_secret() -> None:
    key = hmac.digest(octets("shared"), b"farthing/ilp/v1", "sha256")
    assert key == octets("key")
    assert hmac.digest(key, VECTORS["data"].encode(), "sha256") == octets("fulfillment")


def test_the_packet_has_the_bytes_of_the_vectors() -> None:
    prepare = Prepare(
        int(VECTORS["amount"]), MOMENT, octets("condition"), VECTORS["destination"],
        VECTORS["data"].encode(),
    )  # fmt: skip
    assert encode(prepare) == octets("prepare")
    assert decode_prepare(octets("prepare")) == prepare
    assert VECTORS["expires_at"].encode() in octets("prepare")


def test_pay_js_computes_the_same(pay_js: PayJs) -> None:
    data = VECTORS["data"].encode().hex()
    assert pay_js.ask("toon", event=VECTORS["event"])["hex"] == data
    computed = pay_js.ask(
        "author", secret=VECTORS["author_secret"], pubkey=VECTORS["relay_pubkey"], data=data
    )
    assert computed == {name: VECTORS[name] for name in ("fulfillment", "condition")}
    packet = pay_js.ask(
        "prepare", amount=VECTORS["amount"], expiresAt="2030-01-02T03:04:05.678Z",
        condition=VECTORS["condition"], destination=VECTORS["destination"], data=data,
    )  # fmt: skip
    assert packet["hex"] == VECTORS["prepare"]
