"""Purses of a relay in a process of its own, as their owners see them."""

import time
from base64 import b64decode, b64encode
from datetime import timedelta
from hashlib import sha256
from secrets import token_bytes
from typing import Any
from uuid import uuid4

import orjson

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import PreparedPayment, send_payment, utc_now
from farthing.ilp.condition import condition_of
from farthing.ilp.packet import TYPE_PREPARE, Fulfill, Prepare, to_milliseconds
from farthing.ilp.stream import NONCE_LENGTH, StreamPacket, keys_of
from farthing.ilp.stream_frames import StreamMoney
from farthing.nostr.events import sign_event
from farthing.ports.hosts import ANYWHERE
from farthing.relay.price import encoded_size
from tests.e2e.authors import Author
from tests.e2e.paying import PER_BYTE, as_event, command, http
from tests.e2e.relay_process import RelayProcess

PURSE_TOKEN = "payment-processor-token-0123456789-0123456789"
PURSES = {
    "price_per_byte": PER_BYTE,
    "purse_token": PURSE_TOKEN,
    "requests_per_second": 0,
    "address_messages_per_second": 0,
}


def credit(relay: RelayProcess, key: str, amount: int, once: str = "") -> None:
    """What a payment processor was paid for a purse."""
    answer = http(
        "POST", f"{relay.http}/v1/purses/{key}/credits",
        orjson.dumps({"amount": str(amount), "scale": 9}),
        Authorization=f"Bearer {PURSE_TOKEN}", Idempotency_Key=once or uuid4().hex,
    )  # fmt: skip
    assert answer.status == 201, answer.data


def nostr_authorization(secret: str, method: str, url: str, body: bytes = b"") -> str:
    """NIP-98, as a client makes it."""
    tags = [["u", url], ["method", method]]
    if body:
        tags.append(["payload", sha256(body).hexdigest()])
    key, now = bytes.fromhex(secret), int(time.time())
    event = sign_event(key, kind=27235, content="", created_at=now, tags=tags)
    return f"Nostr {b64encode(event.to_json().encode()).decode()}"


def purse_of(relay: RelayProcess, author: Author) -> dict[str, Any]:
    url = f"{relay.http}/v1/purses/{author.pubkey}"
    answer = http("GET", url, Authorization=nostr_authorization(author.secret, "GET", url))
    assert answer.status == 200, answer.data
    purse: dict[str, Any] = answer.json()
    return purse


def left(relay: RelayProcess, author: Author) -> int:
    return int(purse_of(relay, author)["left"])


def price(event: dict[str, Any]) -> int:
    return PER_BYTE * encoded_size(as_event(event))


def assert_audit(relay: RelayProcess) -> None:
    done = command(relay, "audit")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("0 differences\n")


def pay_by_stream(site: str, token: str, pubkey: str, amounts: list[int]) -> int:
    """What a wallet does: ask the payment pointer, then send encrypted packets. What was paid."""
    asked = http("GET", f"{site}/purse/{pubkey}", Accept="application/spsp4+json").json()
    keys = keys_of(b64decode(asked["shared_secret"]))
    for sequence, amount in enumerate(amounts, start=1):
        request = StreamPacket(sequence, TYPE_PREPARE, amount, (StreamMoney(1, 1),))
        data = keys.seal(request, token_bytes(NONCE_LENGTH))
        prepare = Prepare(
            amount, to_milliseconds(utc_now() + timedelta(seconds=60)),
            condition_of(keys.fulfil(data)), asked["destination_account"], data,
        )  # fmt: skip
        payment = PreparedPayment(prepare, None)
        reply = send_payment(HttpOutbound(ANYWHERE), f"{site}/ilp", token, payment)
        assert isinstance(reply, Fulfill), reply
        assert keys.open(reply.data).amount == amount
    return sum(amounts)
