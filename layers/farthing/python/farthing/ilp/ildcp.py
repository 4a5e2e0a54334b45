"""ILDCP (RFC 0031): a client asks its connector for an address and for the asset of the link."""

import re
from hashlib import sha256
from typing import Final

from farthing.ilp import address, oer
from farthing.ilp.address import Address
from farthing.ilp.packet import Fulfill, Prepare

DESTINATION: Final = "peer.config"
# Not secret: nobody gains anything by fulfilling this condition.
FULFILLMENT: Final = bytes(32)
CONDITION: Final = sha256(FULFILLMENT).digest()

_ASSET_CODE_MAX: Final = 255
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_~-]")


def is_request(prepare: Prepare) -> bool:
    return (
        prepare.destination == DESTINATION
        and prepare.amount == 0
        and prepare.condition == CONDITION
    )


def child_address(own_address: str, client: str) -> Address:
    """An address below ours, for a client without an address of its own."""
    return address.parse(f"{own_address}.{_UNFIT.sub('-', client)}")


def answer(client_address: str, asset_code: str, asset_scale: int) -> Fulfill:
    data = b"".join(
        [
            oer.var_octets(client_address.encode("ascii"), address.MAX_LENGTH),
            oer.u8(asset_scale),
            oer.var_octets(asset_code.encode("utf-8"), _ASSET_CODE_MAX),
        ]
    )
    return Fulfill(FULFILLMENT, data)
