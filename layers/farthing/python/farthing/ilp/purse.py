"""Addresses of purses, and the fulfillments of plain packets that fill one.

`<our address>.purse.<key>` takes plain packets; with a token behind it, it is a STREAM connection
(see `spsp`). The key is a Nostr public key, 64 hexadecimal digits. The connector books the
payments.
"""

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from coincurve import PublicKeyXOnly

from farthing.ilp import address
from farthing.ilp.address import Address
from farthing.ilp.condition import KEY_LENGTH, Scheme, author_fulfillment, condition_of

PURSE_LABEL: Final = b"farthing/purse/v1"
PURSE_SEGMENT: Final = "purse"

# The length of a payer's random data: long enough never to repeat, short enough to store.
DATA_MIN: Final = 16
DATA_MAX: Final = 1024

TOKEN_LENGTH: Final = 16

_KEY: Final = re.compile(r"[0-9a-f]{64}").fullmatch
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{22}").fullmatch
_KEYS_REMEMBERED: Final = 4096


class NotAPurse(ValueError):
    """An address under `.purse.` that leads to no purse: F02."""


class InvalidPurseData(ValueError):
    """Data of a plain packet that is too short or too long: F06."""


@dataclass(frozen=True, slots=True)
class PurseAddress:
    key: bytes
    token: bytes | None = None  # of a STREAM connection; a plain packet has none


def purse_address(own_address: str, key: bytes, token: bytes | None = None) -> Address:
    segments = [own_address, PURSE_SEGMENT, key.hex()]
    if token is not None:
        segments.append(urlsafe_b64encode(token).decode("ascii").rstrip("="))
    return address.parse(".".join(segments))


def parse_purse_address(own_address: str, destination: str) -> PurseAddress:
    """The purse that a destination below our address names. Segments after the token belong to the
    sender."""
    prefix = f"{own_address}.{PURSE_SEGMENT}."
    if not destination.startswith(prefix):
        raise NotAPurse("expected the address of a purse")
    key, *rest = destination.removeprefix(prefix).split(".")
    if _KEY(key) is None or not is_public_key(bytes.fromhex(key)):
        raise NotAPurse("expected a public key of 64 hexadecimal digits as the purse's name")
    return PurseAddress(bytes.fromhex(key), _token(rest[0]) if rest else None)


def _token(segment: str) -> bytes:
    if _TOKEN(segment) is None:
        raise NotAPurse("expected one of our tokens after the key")
    token = urlsafe_b64decode(segment + "==")
    # The last digit has unused bits. They must be 0, so that each token has one spelling only.
    if urlsafe_b64encode(token).decode("ascii").rstrip("=") != segment:
        raise NotAPurse("expected one of our tokens after the key")
    return token


@lru_cache(maxsize=_KEYS_REMEMBERED)
def is_public_key(key: bytes) -> bool:
    """Whether some point of the curve has this x-coordinate."""
    try:
        PublicKeyXOnly(key)
    except ValueError:
        return False
    return len(key) == KEY_LENGTH


def check_data(data: bytes) -> None:
    if not DATA_MIN <= len(data) <= DATA_MAX:
        raise InvalidPurseData(f"expected {DATA_MIN} to {DATA_MAX} octets of data, got {len(data)}")


def purse_fulfillment(relay_secret: bytes, key: bytes, data: bytes) -> bytes:
    """The preimage of a quoted payment into the purse of `key`."""
    return hmac.digest(hmac.digest(relay_secret, PURSE_LABEL, "sha256"), key + data, "sha256")


def find_purse_fulfillment(
    condition: bytes, *, relay_secret: bytes, key: bytes, data: bytes
) -> tuple[Scheme, bytes] | None:
    """The scheme that made the condition of a plain packet, and its preimage; None: F05.

    The author of the condition is the purse's own key, which must be valid (see `is_public_key`).
    """
    for scheme, fulfillment in (
        (Scheme.QUOTE, purse_fulfillment(relay_secret, key, data)),
        (Scheme.AUTHOR, author_fulfillment(relay_secret, key, data)),
    ):
        if hmac.compare_digest(condition_of(fulfillment), condition):
            return scheme, fulfillment
    return None
