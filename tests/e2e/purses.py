"""Purses of a relay in a process of its own, as their owners see them."""

import time
from base64 import b64encode
from hashlib import sha256
from typing import Any
from uuid import uuid4

import orjson

from farthing.nostr.events import sign_event
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
