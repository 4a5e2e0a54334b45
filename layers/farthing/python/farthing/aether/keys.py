"""Aether's keys: the owner's, derived from the Nostr secret, and Ed25519 signatures."""

import hmac
import re
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

SEED_LABEL: Final = b"farthing/aether/v1"
NOISE_LABEL: Final = b"farthing/noise/v1"

_FIELD_PRIME: Final = 2**255 - 19
_SIGN_BIT: Final = 2**255
# The y-coordinates of the points whose order divides 8. For such a key there are signatures that
# are valid for every message, and libraries differ in whether they accept them.
_WEAK_YS: Final = frozenset(
    {
        0,
        1,
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
        _FIELD_PRIME - 1,
    }
)
_HEX64 = re.compile(r"[0-9a-f]{64}").fullmatch
_HEX128 = re.compile(r"[0-9a-f]{128}").fullmatch


def owner_seed(nostr_secret: bytes) -> bytes:
    """The seed of the owner's Ed25519 key."""
    return hmac.digest(nostr_secret, SEED_LABEL, "sha256")


def noise_static(nostr_secret: bytes) -> bytes:
    """The relay's static X25519 private key."""
    return hmac.digest(nostr_secret, NOISE_LABEL, "sha256")


def public_key(seed: bytes) -> str:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw().hex()


def noise_public_key(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_key(value: object) -> bool:
    """Whether the value is text of 32 octets in lower-case hexadecimal."""
    return type(value) is str and _HEX64(value) is not None


def is_signature(value: object) -> bool:
    """Whether the value is text of 64 octets in lower-case hexadecimal."""
    return type(value) is str and _HEX128(value) is not None


@lru_cache(maxsize=4096)  # the same authors write often
def is_weak(pubkey: str) -> bool:
    """Whether anybody can sign for this key, or the key has a second, non-canonical encoding."""
    y = int.from_bytes(bytes.fromhex(pubkey), "little") & (_SIGN_BIT - 1)
    return y >= _FIELD_PRIME or y in _WEAK_YS


def sign(seed: bytes, message: bytes) -> str:
    return Ed25519PrivateKey.from_private_bytes(seed).sign(message).hex()


def is_signed(pubkey: str, message: bytes, signature: str) -> bool:
    """Whether the key's owner signed the message. Nobody owns a weak key.

    Uses libsodium, which takes two thirds of OpenSSL's time: relays verify far more often than they
    sign.
    """
    if is_weak(pubkey):
        return False
    try:
        crypto_sign_open(bytes.fromhex(signature) + message, bytes.fromhex(pubkey))
    except BadSignatureError:
        return False
    return True
