"""Payment pointers (SPSP, RFC 0009): the address at which a wallet pays a purse, and the secret.

Nothing is stored. The address carries the purse's key and a random token, and the secret of the
connection follows from these and the relay's own secret. So any process can answer any packet.
"""

import hmac
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any, Final

from farthing.ilp import oer
from farthing.ilp.address import Address
from farthing.ilp.condition import KEY_LENGTH
from farthing.ilp.purse import TOKEN_LENGTH, purse_address

SPSP_LABEL: Final = b"farthing/spsp/v1"
MEDIA_TYPE: Final = "application/spsp4+json"
CACHE_CONTROL: Final = "no-cache"  # each wallet gets a secret of its own


@dataclass(frozen=True, slots=True)
class StreamConnection:
    """What a wallet needs to pay: a STREAM address and its secret."""

    destination_account: Address
    shared_secret: bytes = field(repr=False)


def connect(relay_secret: bytes, own_address: str, key: bytes, token: bytes) -> StreamConnection:
    """A new connection into the purse of `key`. The token is 16 octets, random each time."""
    secret = connection_secret(relay_secret, key, token)
    return StreamConnection(purse_address(own_address, key, token), secret)


def connection_secret(relay_secret: bytes, key: bytes, token: bytes) -> bytes:
    named = oer.octets(key, KEY_LENGTH) + oer.octets(token, TOKEN_LENGTH)
    return hmac.digest(hmac.digest(relay_secret, SPSP_LABEL, "sha256"), named, "sha256")


def answer(connection: StreamConnection) -> dict[str, Any]:
    return {
        "destination_account": connection.destination_account,
        "shared_secret": b64encode(connection.shared_secret).decode("ascii"),
        "receipts_enabled": False,
    }
