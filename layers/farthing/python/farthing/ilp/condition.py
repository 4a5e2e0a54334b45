"""Conditions and fulfillments: how payer and relay come to the same preimage, and nobody between.

`author`, `quote` and `stream` are safe; `interop` is taken because deployed payers use it, although
any connector on the way can fulfil it, and is never produced here. `stream` is made elsewhere.
"""

import hmac
import secrets
from collections.abc import Collection, Iterator
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Final

from coincurve import PublicKey

KEY_LENGTH: Final = 32
AUTHOR_LABEL: Final = b"farthing/ilp/v1"
QUOTE_LABEL: Final = b"farthing/quote/v1"

_SECP256K1_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_LIFT_EVEN: Final = b"\x02"
_PAIRS_REMEMBERED: Final = 4096


class Scheme(StrEnum):
    """How a condition was made."""

    AUTHOR = "author"  # from a key that only the author and the relay can compute
    QUOTE = "quote"  # by the relay, in answer to a payer who is not the author
    INTEROP = "interop"  # from what the packet itself shows
    STREAM = "stream"  # from the secret of a STREAM connection


class InvalidKey(ValueError):
    """A secret key outside the curve's order."""


class InvalidPubkey(InvalidKey):
    """A public key that is the x-coordinate of no point."""


def condition_of(fulfillment: bytes) -> bytes:
    return sha256(fulfillment).digest()


def author_fulfillment(secret_key: bytes, other_pubkey: bytes, data: bytes) -> bytes:
    """The preimage for `data`; payer and relay each call it with their own key and the other's."""
    mac = _pair_mac(secret_key, other_pubkey).copy()
    mac.update(data)
    return mac.digest()


def quote_fulfillment(relay_secret: bytes, event_id: bytes) -> bytes:
    return fulfillment_by(quote_key(relay_secret), event_id)


def quote_key(relay_secret: bytes) -> bytes:
    """All that it takes to quote, for a process that must not hold the secret itself."""
    return hmac.digest(relay_secret, QUOTE_LABEL, "sha256")


def fulfillment_by(key: bytes, event_id: bytes) -> bytes:
    return hmac.digest(key, event_id, "sha256")


def interop_fulfillments(event_id_hex: str | None, data: bytes) -> tuple[bytes, ...]:
    """The preimages that deployed payers use: from the event id's hex text, and from the data."""
    sources = [data] if event_id_hex is None else [event_id_hex.encode("ascii"), data]
    return tuple(sha256(source).digest() for source in sources)


def find_fulfillment(
    condition: bytes,
    *,
    relay_secret: bytes,
    data: bytes,
    author: bytes | None = None,
    event_id: bytes | None = None,
    accept: Collection[Scheme] = tuple(Scheme),
) -> tuple[Scheme, bytes] | None:
    """The scheme that made `condition` and its preimage, or None if the relay knows none.

    Without `author` (x-only) or `event_id` the schemes that need them are passed over, and so is
    an author that is no key.
    """
    # Nearly all payers are authors: their scheme comes first, and needs no list of the others.
    if Scheme.AUTHOR in accept and author is not None:
        try:
            fulfillment = author_fulfillment(relay_secret, author, data)
        except InvalidPubkey:
            pass
        else:
            if _fulfils(fulfillment, condition):
                return Scheme.AUTHOR, fulfillment
    for scheme, fulfillment in _without_author(relay_secret, data, event_id, accept):
        if _fulfils(fulfillment, condition):
            return scheme, fulfillment
    return None


def _fulfils(fulfillment: bytes, condition: bytes) -> bool:
    return hmac.compare_digest(condition_of(fulfillment), condition)


def _without_author(
    relay_secret: bytes, data: bytes, event_id: bytes | None, accept: Collection[Scheme]
) -> Iterator[tuple[Scheme, bytes]]:
    if Scheme.QUOTE in accept and event_id is not None:
        yield Scheme.QUOTE, quote_fulfillment(relay_secret, event_id)
    if Scheme.INTEROP in accept:
        event_id_hex = None if event_id is None else event_id.hex()
        for fulfillment in interop_fulfillments(event_id_hex, data):
            yield Scheme.INTEROP, fulfillment


@lru_cache(maxsize=_PAIRS_REMEMBERED)
def _pair_mac(secret_key: bytes, other_pubkey: bytes) -> hmac.HMAC:
    """HMAC by the key that the two share, before any data.

    Remembered because the curve takes far longer (0.1 ms) than everything else here. Copies go on
    from it: `hmac.digest` would let go of the interpreter for a microsecond's work, and win it back
    last on a busy machine.
    """
    key = hmac.digest(_shared_x(secret_key, other_pubkey), AUTHOR_LABEL, "sha256")
    return hmac.new(key, digestmod="sha256")


def _shared_x(secret_key: bytes, other_pubkey: bytes) -> bytes:
    """The x-coordinate of the Diffie-Hellman point, whose sign the x-only keys leave open."""
    point = _lift(other_pubkey)
    # coincurve's multiply takes a time that depends on the scalar, and its constant-time ecdh gives
    # only a hash. So the secret is split at random, and each multiplication is by a random scalar.
    half, other_half = _split(_scalar(secret_key))
    shared = PublicKey.combine_keys([point.multiply(half), point.multiply(other_half)])
    return shared.format(compressed=True)[1:]


def _lift(pubkey: bytes) -> PublicKey:
    if len(pubkey) != KEY_LENGTH:
        raise InvalidPubkey("a public key has 32 bytes")
    try:
        return PublicKey(_LIFT_EVEN + pubkey)
    except ValueError:
        raise InvalidPubkey("no point has this x-coordinate") from None


def _scalar(secret_key: bytes) -> int:
    scalar = int.from_bytes(secret_key, "big")
    if len(secret_key) != KEY_LENGTH or not 0 < scalar < _SECP256K1_ORDER:
        raise InvalidKey("a secret key has 32 bytes and lies inside the curve's order")
    return scalar


def _split(scalar: int) -> tuple[bytes, bytes]:
    half = 1 + secrets.randbelow(_SECP256K1_ORDER - 1)
    other_half = (scalar - half) % _SECP256K1_ORDER
    return half.to_bytes(KEY_LENGTH, "big"), other_half.to_bytes(KEY_LENGTH, "big")
