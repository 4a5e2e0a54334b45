"""Resumption tokens: a position in a subscription, sealed by the relay, for its owner only."""

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import orjson

from farthing.btp_nips.errors import InvalidToken
from farthing.btp_nips.identity import Owner
from farthing.btp_nips.positions import Position, parse_position

TOKEN_LABEL: Final = b"farthing/subscription/v1"
GRACE_SECONDS: Final = 24 * 3600  # tokens and ended subscriptions stay this long

_VERSION: Final = b"\x01"
_MAC_LENGTH: Final = sha256().digest_size


@dataclass(frozen=True, slots=True)
class ResumptionToken:
    owner: Owner
    subscription_id: str
    position: Position
    expires_at: int  # when the subscription ends or ended, in seconds


def issue_token(relay_secret: bytes, token: ResumptionToken) -> str:
    body = _VERSION + orjson.dumps(
        {
            "o": token.owner,
            "s": token.subscription_id,
            "p": str(token.position),
            "e": token.expires_at,
        }
    )
    return urlsafe_b64encode(body + _mac(relay_secret, body)).rstrip(b"=").decode()


def read_token(relay_secret: bytes, text: str, *, owner: Owner, now: int) -> ResumptionToken:
    """Raises InvalidToken for a token that we did not issue to this owner, or that is too old."""
    sealed = _from_base64(text)
    body, mac = sealed[:-_MAC_LENGTH], sealed[-_MAC_LENGTH:]
    if not hmac.compare_digest(_mac(relay_secret, body), mac):
        raise InvalidToken("expected a token that this relay has issued")
    if body[:1] != _VERSION:
        raise InvalidToken(f"expected version {_VERSION[0]}")
    token = _parse(body[1:])
    if token.owner != owner:
        raise InvalidToken("expected a token of the subscription's own owner")
    if now > token.expires_at + GRACE_SECONDS:
        raise InvalidToken("the token has expired")
    return token


def read_unverified(text: str) -> ResumptionToken | None:
    """What a token says, for its holder: only the relay that issued it can check it. None if it is
    of a form that this code does not know."""
    try:
        octets = _from_base64(text)
        return _parse(octets[1:-_MAC_LENGTH]) if octets[:1] == _VERSION else None
    except (InvalidToken, ValueError, KeyError, TypeError):
        return None


def _parse(json: bytes) -> ResumptionToken:
    # A sealed text is our own, so its form is valid.
    fields = orjson.loads(json)
    return ResumptionToken(
        Owner(fields["o"]), fields["s"], parse_position(fields["p"]), fields["e"]
    )


def _from_base64(text: str) -> bytes:
    """Decode the form that `issue_token` writes. Every other form is refused."""
    try:
        octets = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise InvalidToken("expected unpadded base64url") from None
    if urlsafe_b64encode(octets).rstrip(b"=").decode() != text:
        raise InvalidToken("expected unpadded base64url")
    return octets


def _mac(relay_secret: bytes, body: bytes) -> bytes:
    return hmac.digest(hmac.digest(relay_secret, TOKEN_LABEL, "sha256"), body, "sha256")
