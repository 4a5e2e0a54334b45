"""NIP-98: the `Authorization: Nostr …` header, an event by which a key signs one HTTP request.

Pure: the request and the time are arguments. The caller decides what the key may do.
"""

import binascii
from base64 import b64decode
from hashlib import sha256
from typing import Final

import orjson

from farthing.nostr.events import Event, InvalidEvent, parse_event, verify

HTTP_AUTH_KIND: Final = 27235
SECONDS_APART_MAX: Final = 60

# API Gateway takes 10,240 octets for all headers together.
HEADER_MAX: Final = 8192

_SCHEME: Final = "nostr"


class InvalidHttpAuth(ValueError):
    """The header is malformed, or does not authorize this request: 401."""


def authorized_key(
    header: str,
    *,
    url: str,
    method: str,
    body: bytes,
    now: int,
    seconds_apart: int = SECONDS_APART_MAX,
) -> str:
    """The public key (hex) that signed this very request.

    `url` is absolute and has the query, as the client sees it. The event must cover the body.
    """
    event = parse_header(header)
    if event.kind != HTTP_AUTH_KIND:
        raise InvalidHttpAuth(f"expected kind {HTTP_AUTH_KIND}, got {event.kind}")
    if abs(now - event.created_at) > seconds_apart:
        raise InvalidHttpAuth(f"created_at is more than {seconds_apart} seconds from now")
    if _value(event, "u") != url:
        raise InvalidHttpAuth("expected the URL of this request in the u tag")
    if _value(event, "method").upper() != method.upper():
        raise InvalidHttpAuth("expected the method of this request in the method tag")
    if body or any(tag[:1] == ("payload",) for tag in event.tags):
        _check_payload(event, body)
    # Last, because the check of the signature takes longest.
    try:
        verify(event)
    except InvalidEvent as error:
        raise InvalidHttpAuth(str(error)) from None
    return event.pubkey


def parse_header(header: str) -> Event:
    """The event in a header; its structure only."""
    if len(header) > HEADER_MAX:
        raise InvalidHttpAuth(f"expected a header of at most {HEADER_MAX} characters")
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != _SCHEME:
        raise InvalidHttpAuth("expected the authorization scheme Nostr")
    try:
        return parse_event(orjson.loads(b64decode(encoded.strip(), validate=True)))
    except (binascii.Error, ValueError):  # not ASCII, base64, JSON or an event
        raise InvalidHttpAuth("expected an event as JSON in base64") from None


def _check_payload(event: Event, body: bytes) -> None:
    if _value(event, "payload").lower() != sha256(body).hexdigest():
        raise InvalidHttpAuth("expected the SHA-256 of the body in the payload tag")


def _value(event: Event, name: str) -> str:
    """The value of the only tag of this name. With two such tags, two readers could read different
    values."""
    tags = [tag for tag in event.tags if tag[:1] == (name,)]
    if len(tags) != 1 or len(tags[0]) < 2:
        raise InvalidHttpAuth(f"expected one {name} tag with a value")
    return tags[0][1]
