"""Conditions and fulfillments: payer and relay compute the same preimage, and no connector between
them can.

`author`, `quote` and `stream` are safe; `interop` is accepted because deployed payers use it,
although any connector on the way can fulfil it. Farthing never produces it. `ilp.stream` makes the
conditions of `stream`.
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
    INTEROP = "interop"  # from data that every connector can see in the packet
    STREAM = "stream"  # from the secret of a STREAM connection


class InvalidKey(ValueError):
    """A secret key outside the curve's order."""


class InvalidPubkey(InvalidKey):
    """A public key that is not the x-coordinate of a point."""


def condition_of(fulfillment: bytes) -> bytes:
    return sha256(fulfillment).digest()


def author_fulfillment(
    secret_key: bytes, other_pubkey: bytes, data: bytes, label: bytes = AUTHOR_LABEL
) -> bytes:
    """The preimage for `data`. Payer and relay each pass their own secret key and the other's
    public key. Another label gives another preimage, for another use of the same keys."""
    mac = _pair_mac(secret_key, other_pubkey, label).copy()
    mac.update(data)
    return mac.digest()


def quote_fulfillment(relay_secret: bytes, event_id: bytes) -> bytes:
    return fulfillment_by(quote_key(relay_secret), event_id)


def quote_key(relay_secret: bytes) -> bytes:
    """The key for quotes, for a process that must not hold the secret itself."""
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

    A scheme that needs `author` (x-only) or `event_id` is skipped if that is missing, or if
    `author` is not a valid key.
    """
    # Nearly all payers are authors, so their scheme is tried before the others are computed.
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
def _pair_mac(secret_key: bytes, other_pubkey: bytes, label: bytes) -> hmac.HMAC:
    """An HMAC with the key that both sides share, before any data is added.

    Cached, because the curve takes far longer (0.1 ms) than everything else here. Callers continue
    with a copy. They do not use `hmac.digest`: it would release the interpreter lock for a
    microsecond of work, and on a busy machine the thread would wait long to get the lock back.
    """
    key = hmac.digest(_shared_x(secret_key, other_pubkey), label, "sha256")
    return hmac.new(key, digestmod="sha256")


def _shared_x(secret_key: bytes, other_pubkey: bytes) -> bytes:
    """The x-coordinate of the Diffie-Hellman point. X-only keys do not decide the sign of its
    y-coordinate."""
    point = _lift(other_pubkey)
    # coincurve's multiply takes a time that depends on the scalar, and its constant-time ecdh gives
    # only a hash. So the secret is split at random, and each multiplication is by a random scalar.
    half, other_half = _split(_scalar(secret_key))
    shared = PublicKey.combine_keys([point.multiply(half), point.multiply(other_half)])
    return shared.format(compressed=True)[1:]


def _lift(pubkey: bytes) -> PublicKey:
    if len(pubkey) != KEY_LENGTH:
        raise InvalidPubkey("expected a public key of 32 bytes")
    try:
        return PublicKey(_LIFT_EVEN + pubkey)
    except ValueError:
        raise InvalidPubkey(
            "expected a public key: no point of the curve has this x-coordinate"
        ) from None


def _scalar(secret_key: bytes) -> int:
    scalar = int.from_bytes(secret_key, "big")
    if len(secret_key) != KEY_LENGTH or not 0 < scalar < _SECP256K1_ORDER:
        raise InvalidKey("expected a secret key of 32 bytes, below the curve's order")
    return scalar


def _split(scalar: int) -> tuple[bytes, bytes]:
    half = 1 + secrets.randbelow(_SECP256K1_ORDER - 1)
    other_half = (scalar - half) % _SECP256K1_ORDER
    return half.to_bytes(KEY_LENGTH, "big"), other_half.to_bytes(KEY_LENGTH, "big")
