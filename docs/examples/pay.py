"""Sign a note, pay a Farthing relay for storing it, and show the receipt.

    NOSTR_SECRET_KEY=<64 hex digits> FARTHING_TOKEN=<bearer token> \\
        python docs/examples/pay.py http://127.0.0.1:7777 "hello" --max-amount 10000

Only pure modules of the library are used, and urllib3 for HTTP: `pay` is all that a program of your
own needs. `infra/web/pay.js` does the same in JavaScript.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import urllib3

from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare, Reject, decode_reply, encode, to_milliseconds
from farthing.ilp.toon import dumps_event
from farthing.nostr.events import Event, sign_event

_EXPIRY = timedelta(seconds=30)
_SECONDS = 35.0
_TRIES = 4  # a fee that is a share of the amount grows with it, by less and less
_OCTETS = "application/octet-stream"
_QUOTED = ("event_id", "price", "destination", "endpoint", "pubkey", "condition")


class PaymentFailed(Exception):
    """The payment could not be made, or its outcome is unknown; the message says why."""


class PaymentRejected(PaymentFailed):
    """A connector or the relay has rejected the packet, which has cost nothing."""

    def __init__(self, reject: Reject) -> None:
        who = reject.triggered_by or "unknown"
        super().__init__(f"{reject.code} {reject.message} (by {who})")
        self.reject = reject


@dataclass(frozen=True)
class Receipt:
    event_id: str
    amount: int
    destination: str
    scheme: str
    fulfillment: str


def pay(
    relay: str,
    event: Event,
    *,
    token: str,
    max_amount: int,
    author_secret: bytes | None = None,
    connector: str = "",
) -> Receipt:
    """Pay for one signed event, at most `max_amount` with all fees.

    With the author's secret key the scheme is `author`, without it `quote`. The packet goes to
    `connector`, which the token is for, or else to the relay itself.
    """
    quote = ask_quote(relay, event)
    endpoint = connector or own_endpoint(relay, quote)
    data = dumps_event(event)
    if author_secret is None:
        scheme, condition = "quote", bytes.fromhex(quote["condition"])
    else:
        shared = author_fulfillment(author_secret, bytes.fromhex(quote["pubkey"]), data)
        scheme, condition = "author", condition_of(shared)
    amount, tries = amount_of(quote["price"]), 1
    while amount <= max_amount:
        expires_at = to_milliseconds(datetime.now(UTC) + _EXPIRY)
        prepare = Prepare(amount, expires_at, condition, quote["destination"], data)
        reply = send_packet(endpoint, token, prepare)
        if isinstance(reply, Fulfill):
            paid = reply.fulfillment.hex()
            return Receipt(event.id, amount, prepare.destination, scheme, paid)
        kept = kept_on_the_way(reply)
        if not kept or tries == _TRIES:
            raise PaymentRejected(reply)
        amount, tries = amount + kept, tries + 1
    raise PaymentFailed(f"the price is {amount}, and at most {max_amount} may be paid")


def ask_quote(relay: str, event: Event) -> dict[str, str]:
    """What storing the event costs, where to pay, and a condition. Nothing is stored."""
    body = json.dumps({"event": event.as_dict()}).encode()
    response = post(f"{http_url(relay)}/v1/quotes", {"Content-Type": "application/json"}, body)
    if response.status != 200:
        raise PaymentFailed(f"no quote: HTTP {response.status}: {response.data[:200]!r}")
    answer: Any = response.json()
    told = answer if isinstance(answer, dict) else {}
    quote = {name: told[name] for name in _QUOTED if isinstance(told.get(name), str)}
    if quote.keys() != set(_QUOTED) or quote["event_id"] != event.id:
        raise PaymentFailed("expected a quote for this event, got another or none")
    return quote


def own_endpoint(relay: str, quote: dict[str, str]) -> str:
    """The relay's own connector. A relay must not be able to have the token sent elsewhere."""
    endpoint = quote["endpoint"]
    if urlsplit(endpoint)[:2] != urlsplit(http_url(relay))[:2]:
        raise PaymentFailed(
            f"expected to pay at the relay's host, got {endpoint}: name a connector"
        )
    return endpoint


def send_packet(endpoint: str, token: str, prepare: Prepare) -> Fulfill | Reject:
    """The connector's answer; a fulfillment has been checked against the condition."""
    headers = {"Content-Type": _OCTETS, "Accept": _OCTETS, "Authorization": f"Bearer {token}"}
    response = post(endpoint, headers, encode(prepare))
    if response.status != 200:
        raise PaymentFailed(f"expected a packet, got HTTP {response.status}")
    reply = decode_reply(response.data)
    if isinstance(reply, Fulfill) and not is_preimage(reply.fulfillment, prepare.condition):
        raise PaymentFailed("the fulfillment does not hash to the condition")
    return reply


def is_preimage(fulfillment: bytes, condition: bytes) -> bool:
    return hashlib.sha256(fulfillment).digest() == condition


def kept_on_the_way(reject: Reject) -> int:
    """What connectors kept of a packet that arrived with less than the price (F04)."""
    if reject.code != "F04":
        return 0
    try:
        told = json.loads(reject.data)
        return max(0, amount_of(told["price"]) - amount_of(told["received"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0


def amount_of(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(text)


def http_url(relay: str) -> str:
    return (relay.replace("ws", "http", 1) if relay.startswith("ws") else relay).rstrip("/")


def post(url: str, headers: dict[str, str], body: bytes) -> urllib3.BaseHTTPResponse:
    try:
        return urllib3.request(
            "POST", url, headers=headers, body=body, timeout=_SECONDS, retries=False, redirect=False
        )
    except urllib3.exceptions.HTTPError as error:
        raise PaymentFailed(f"{url} does not answer: {error}") from error


def main() -> int:
    parser = argparse.ArgumentParser(description="Sign a note and pay a relay for storing it.")
    parser.add_argument("relay", help="URL of the relay: wss, ws, https or http")
    parser.add_argument("text", help="content of the note")
    parser.add_argument("--max-amount", type=int, required=True, help="the most that may be paid")
    parser.add_argument("--connector", default="", help="URL that takes the packet")
    parser.add_argument("--quote", action="store_true", help="scheme `quote` instead of `author`")
    options = parser.parse_args()
    secret = bytes.fromhex(os.environ["NOSTR_SECRET_KEY"])
    event = sign_event(secret, kind=1, content=options.text, created_at=int(time.time()), tags=[])
    try:
        receipt = pay(
            options.relay, event, token=os.environ["FARTHING_TOKEN"], max_amount=options.max_amount,
            author_secret=None if options.quote else secret, connector=options.connector,
        )  # fmt: skip
    except (PaymentFailed, ValueError) as error:
        print(f"not paid: {error}", file=sys.stderr)
        return 1
    print(json.dumps(vars(receipt), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
