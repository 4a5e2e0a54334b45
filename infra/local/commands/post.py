"""`farthing post` and `farthing quote`: the paying side, against any relay that says how to pay."""

import json
import secrets
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import urllib3

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import (
    NotPayable,
    Payment,
    PaymentFailed,
    RelayTerms,
    kept_on_the_way,
    prepare_payment,
    send_payment,
    terms_from_information,
    utc_now,
)
from farthing.ilp.packet import Fulfill, InvalidPacket, Reject
from farthing.ilp.toon import NotEncodable, dumps_event
from farthing.nostr.events import Event, sign_event
from farthing.ports.hosts import ANYWHERE
from farthing.ports.outbound import OutboundFailed
from farthing.settings import Settings
from infra.local.server.identity import kept_secret, with_identity
from infra.local.server.peers import local_token

AUTHOR_FILE = "author-key"
_TIMEOUT = 10.0
_TRIES = 4  # a share of the amount grows with it, by less and less


def post(arguments: Namespace, settings: Settings) -> int:
    """Sign an event, pay for it, and say what happened."""
    secret = author_secret(arguments, settings)
    event = _signed(arguments, secret)
    terms = relay_terms(web_url(arguments, settings))
    token = arguments.token or settings.peer_token or local_token(Path(settings.data))
    _row("event", event.id)
    _row("price", price_line(terms, event))
    started = time.perf_counter()
    payment, reply = _pay(arguments, event, secret, terms, token)
    took = f"{(time.perf_counter() - started) * 1000:.0f} ms"
    if isinstance(reply, Reject):
        _row("rejected", f"{reply.code} {reply.message} (by {reply.triggered_by or 'unknown'})")
        return 1
    _row("paid", f"{payment.amount} {terms.tariff.unit} to {terms.destination}")
    _row("fulfilment", reply.fulfillment.hex())
    _row("stored", f"after {took}")
    return 0


def _pay(
    arguments: Namespace, event: Event, secret: bytes, terms: RelayTerms, token: str
) -> tuple[Payment, Fulfill | Reject]:
    """Pay the price; where connectors on the way have kept of it, try again with that on top. A
    packet that is rejected has cost nothing."""
    endpoint = arguments.connector or terms.endpoint
    payment = prepare_payment(event, secret, terms, utc_now(), arguments.amount)
    fees = payment.amount if arguments.max_fees is None else arguments.max_fees
    most = payment.amount + (fees if arguments.amount is None else 0)
    for _ in range(_TRIES):
        reply = send_payment(HttpOutbound(ANYWHERE), endpoint, token, payment)
        kept = kept_on_the_way(reply) if isinstance(reply, Reject) else 0
        if not kept or payment.amount + kept > most:
            break
        payment = prepare_payment(event, secret, terms, utc_now(), payment.amount + kept)
    return payment, reply


def quote(arguments: Namespace, settings: Settings) -> int:
    """Ask the relay for the price of an event, without publishing it."""
    event = _signed(arguments, author_secret(arguments, settings))
    print(json.dumps(ask_quote(web_url(arguments, settings), event), indent=2))
    return 0


def ask_quote(relay: str, event: Event) -> dict[str, Any]:
    body = json.dumps({"event": event.as_dict()}).encode()
    headers = {"Content-Type": "application/json"}
    return _ask("POST", f"{http_url(relay)}/v1/quotes", headers, body)


def author_secret(arguments: Namespace, settings: Settings) -> bytes:
    """The key that signs: the owner's if asked for, else a client's own, kept beside the data."""
    if arguments.owner:
        return bytes.fromhex(with_identity(settings).secret_key)
    path = Path(settings.data) / AUTHOR_FILE
    return bytes.fromhex(kept_secret(path, lambda: secrets.token_hex(32)))


def _signed(arguments: Namespace, secret: bytes) -> Event:
    content = sys.stdin.read() if arguments.text == "-" else arguments.text
    tags = [tag.split("=", 1)[:1] + tag.split("=", 1)[1].split(",") for tag in arguments.tag]
    return sign_event(
        secret, kind=arguments.kind, content=content, created_at=int(time.time()), tags=tags
    )


def relay_url(arguments: Namespace, settings: Settings) -> str:
    return arguments.relay or settings.relay_url or f"ws://{settings.host}:{settings.port}"


def web_url(arguments: Namespace, settings: Settings) -> str:
    """Where the relay answers HTTP: another place than its sockets', if it is set apart."""
    return http_url(arguments.relay) if arguments.relay else settings.http_url


def http_url(relay: str) -> str:
    return relay.replace("ws", "http", 1).rstrip("/") if relay.startswith("ws") else relay


def relay_terms(relay: str) -> RelayTerms:
    headers = {"Accept": "application/nostr+json"}
    return terms_from_information(_ask("GET", http_url(relay), headers))


def _ask(
    method: str, url: str, headers: dict[str, str], body: bytes | None = None
) -> dict[str, Any]:
    response = urllib3.request(
        method, url, body=body, headers=headers, timeout=_TIMEOUT, retries=False
    )
    try:
        answer = response.json()
    except ValueError:
        raise NotPayable(f"the relay answered HTTP {response.status} without JSON") from None
    if not isinstance(answer, dict) or response.status >= 400:
        detail = answer.get("detail", "") if isinstance(answer, dict) else ""
        raise NotPayable(f"the relay answered HTTP {response.status}: {detail}")
    return answer


def price_line(terms: RelayTerms, event: Event) -> str:
    size, tariff = len(dumps_event(event)), terms.tariff
    how = "flat" if event.kind in tariff.kinds else f"{size} bytes at {tariff.per_byte}"
    return f"{tariff.price(event.kind, size)} {tariff.unit} ({how})"


def _row(name: str, value: str) -> None:
    print(f"{name:<12}{value}", flush=True)


ERRORS = (
    NotPayable,
    PaymentFailed,
    OutboundFailed,
    NotEncodable,
    InvalidPacket,  # an event that no packet has room for, or a price
    urllib3.exceptions.HTTPError,
)
