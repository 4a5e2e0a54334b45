"""Shared by the commands that pay: the signing key, a relay's terms and prices, HTTP requests."""

import json
import secrets
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

import urllib3

from farthing.connector.client import (
    NotPayable,
    PaymentFailed,
    RelayTerms,
    terms_from_information,
)
from farthing.ilp.money import readable
from farthing.ilp.packet import InvalidPacket
from farthing.ilp.toon import NotEncodable, dumps_event
from farthing.nostr.events import Event, sign_event
from farthing.ports.outbound import OutboundFailed
from farthing.settings import Settings
from infra.local.commands.relay_address import host_of, http_url, is_own, relay
from infra.local.commands.terminal import plain
from infra.local.server.identity import kept_secret, with_identity
from infra.local.server.peers import local_token

# Hundredths of the relay's asset: a user who posts a note expects to pay less than a cent.
_HIGHEST_PRICE_DIGITS = 2
AUTHOR_FILE = "author-key"
_TIMEOUT = 10.0

ERRORS = (
    NotPayable,
    PaymentFailed,
    OutboundFailed,
    NotEncodable,
    InvalidPacket,  # an event that is too large for a packet, or a price that is
)


def add_event_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("text", help="content of the event; - reads it from stdin")
    parser.add_argument(
        "--kind", type=_kind, default=1, help="kind of the event; %(default)s if left out"
    )
    parser.add_argument(
        "--tag", action="append", default=[], type=_tag, metavar="NAME=VALUE[,VALUE]",
        help="a tag of the event; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--relay", default="", type=relay, help="WebSocket URL; the local one if left out"
    )
    parser.add_argument("--owner", action="store_true", help="sign with the owner's key")


def add_connector_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--token", default="", help="bearer token for the connector; needed unless it is our own"
    )
    parser.add_argument("--connector", default="", help="URL that takes the packet")


def connector_token(arguments: Namespace, settings: Settings, endpoint: str) -> str:
    """The token for a connector. Our own token goes to our own connector only: another connector
    that saw the token could spend our money with it."""
    if arguments.token:
        return str(arguments.token)
    if not is_own(endpoint, settings):
        raise NotPayable(
            f"the packet would go to {plain(endpoint)}, which is not our own connector: give a"
            f" --token for it, or pay through our own with --connector {settings.ilp_url}"
        )
    return settings.peer_token or local_token(Path(settings.data))


def _kind(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= 65535):
        raise ArgumentTypeError(f"expected a kind from 0 to 65535, got {text[:40]!r}")
    return int(text)


def _tag(text: str) -> str:
    if "=" not in text:
        raise ArgumentTypeError(f"expected NAME=VALUE, got {text[:80]!r}")
    return text


def author_secret(arguments: Namespace, settings: Settings) -> bytes:
    """The signing key: the owner's with --owner, else a client's own key in the data folder."""
    if arguments.owner:
        return bytes.fromhex(with_identity(settings).secret_key)
    path = Path(settings.data) / AUTHOR_FILE
    return bytes.fromhex(kept_secret(path, lambda: secrets.token_hex(32)))


def signed(arguments: Namespace, secret: bytes) -> Event:
    content = sys.stdin.read() if arguments.text == "-" else arguments.text
    tags = [tag.split("=", 1)[:1] + tag.split("=", 1)[1].split(",") for tag in arguments.tag]
    return sign_event(
        secret, kind=arguments.kind, content=content, created_at=int(time.time()), tags=tags
    )


def relay_terms(relay: str) -> RelayTerms:
    headers = {"Accept": "application/nostr+json"}
    return terms_from_information(ask("GET", http_url(relay), headers))


def ask_quote(relay: str, event: Event) -> dict[str, Any]:
    return ask_for_quote(relay, {"event": event.as_dict()})


def ask_for_quote(relay: str, question: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps(question).encode()
    headers = {"Content-Type": "application/json"}
    return ask("POST", f"{http_url(relay)}/v1/quotes", headers, body)


def ask(
    method: str, url: str, headers: dict[str, str], body: bytes | None = None
) -> dict[str, Any]:
    """A relay's answer by HTTP. Raises NotPayable, with a readable reason, if there is none."""
    try:
        response = urllib3.request(
            method, url, body=body, headers=headers, timeout=_TIMEOUT, retries=False,
            redirect=False,
        )  # fmt: skip
    except urllib3.exceptions.HTTPError as error:
        raise NotPayable(f"no answer from {host_of(url)}: {_why(error)}") from None
    try:
        answer = response.json()
    except ValueError:
        raise NotPayable(f"expected JSON, got HTTP {response.status} without JSON") from None
    if not isinstance(answer, dict) or response.status >= 400:
        detail = answer.get("detail", "") if isinstance(answer, dict) else ""
        raise NotPayable(f"the relay answered HTTP {response.status}: {detail}")
    return answer


def _why(error: urllib3.exceptions.HTTPError) -> str:
    match error:
        case urllib3.exceptions.NameResolutionError():
            return "the host has no address"
        case urllib3.exceptions.NewConnectionError():
            return "the connection was refused"
        case urllib3.exceptions.TimeoutError():
            return "no answer in time"
        case urllib3.exceptions.SSLError():
            return "its certificate is not valid"
    return type(error).__name__


def highest_price(given: int | None, asset_scale: int) -> int:
    """The highest price that is paid for one event: the user's, or a default."""
    return 10 ** max(0, asset_scale - _HIGHEST_PRICE_DIGITS) if given is None else given


def price_line(terms: RelayTerms, event: Event) -> str:
    size, tariff = len(dumps_event(event)), terms.tariff
    how = "flat" if event.kind in tariff.kinds else f"{size} bytes at {tariff.per_byte}"
    price = tariff.price_event(event, size)
    if event.kind not in tariff.kinds and price != size * tariff.per_byte:
        how = f"its indexed tags at {tariff.per_tag}, the first {tariff.free_tags} free"
    money = readable(price, tariff.asset_code, tariff.asset_scale)
    return f"{price} {tariff.unit} ({how}) = {money}"
