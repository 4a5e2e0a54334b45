"""STREAM packets (RFC 0029): their bytes, their encryption, and the fulfillment that they imply.

Only the two ends of a connection know its secret, so a packet that decrypts comes from the other
end, and nobody between can fulfil it.
"""

import hmac
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from farthing.ilp import oer
from farthing.ilp.oer import InvalidPacket, OctetReader
from farthing.ilp.packet import DATA_MAX, TYPE_FULFILL, TYPE_PREPARE, TYPE_REJECT
from farthing.ilp.stream_frames import (
    Frame,
    read_frame,
    read_var_uint,
    write_frame,
    write_var_uint,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION: Final = 1
SECRET_LENGTH: Final = 32
NONCE_LENGTH: Final = 12
TAG_LENGTH: Final = 16

_ENCRYPTION_LABEL: Final = b"ilp_stream_encryption"
_FULFILLMENT_LABEL: Final = b"ilp_stream_fulfillment"
_ILP_TYPES: Final = frozenset({TYPE_PREPARE, TYPE_FULFILL, TYPE_REJECT})
_SECRETS_REMEMBERED: Final = 1024


class NotDecryptable(InvalidPacket):
    """Data that was not encrypted under this secret, or was changed on its way."""


@dataclass(frozen=True, slots=True)
class StreamPacket:
    sequence: int
    ilp_type: int  # the ILP packet that it travels in: 12, 13 or 14
    amount: int  # in a Prepare the smallest amount that may arrive, in a reply the arrived amount
    frames: tuple[Frame, ...] = ()


def encode(packet: StreamPacket) -> bytes:
    if packet.ilp_type not in _ILP_TYPES:
        raise InvalidPacket("expected the type of a Prepare, Fulfill or Reject")
    return b"".join(
        [
            oer.u8(VERSION),
            oer.u8(packet.ilp_type),
            write_var_uint(packet.sequence),
            write_var_uint(packet.amount),
            write_var_uint(len(packet.frames)),
            *map(write_frame, packet.frames),
        ]
    )


def decode(octets: bytes) -> StreamPacket:
    """The packet, without frames of unknown types. Octets behind the last frame are padding."""
    reader = OctetReader(octets)
    version = reader.u8()
    if version != VERSION:
        raise InvalidPacket(f"expected STREAM version {VERSION}, got {version}")
    ilp_type = reader.u8()
    sequence = read_var_uint(reader)
    amount = read_var_uint(reader)
    frames = []
    # If the count is too large, reading fails at the first missing frame.
    for _ in range(read_var_uint(reader)):
        frame = read_frame(reader)
        if frame is not None:
            frames.append(frame)
    return StreamPacket(sequence, ilp_type, amount, tuple(frames))


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that follow from the secret of a connection."""

    cipher: "AESGCM" = field(repr=False)
    fulfillment: bytes = field(repr=False)

    def seal(self, packet: StreamPacket, nonce: bytes) -> bytes:
        """The packet as ILP data: nonce, tag, ciphertext. A connection uses each nonce once."""
        sealed = self.cipher.encrypt(oer.octets(nonce, NONCE_LENGTH), encode(packet), None)
        # The library puts the tag last, the RFC first.
        data = nonce + sealed[-TAG_LENGTH:] + sealed[:-TAG_LENGTH]
        if len(data) > DATA_MAX:
            raise InvalidPacket(f"expected at most {DATA_MAX} octets, got {len(data)}")
        return data

    def open(self, data: bytes) -> StreamPacket:
        return decode(self._decrypt(data))

    def fulfil(self, data: bytes) -> bytes:
        """The fulfillment of a Prepare with this (encrypted) data."""
        return hmac.digest(self.fulfillment, data, "sha256")

    def _decrypt(self, data: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        if len(data) < NONCE_LENGTH + TAG_LENGTH:
            raise NotDecryptable("expected a STREAM packet, got too few octets")
        nonce, rest = data[:NONCE_LENGTH], data[NONCE_LENGTH:]
        try:
            return self.cipher.decrypt(nonce, rest[TAG_LENGTH:] + rest[:TAG_LENGTH], None)
        except InvalidTag:
            raise NotDecryptable(
                "expected data that is encrypted under this connection's secret"
            ) from None


# Cached, because packets of one connection come in a row.
@lru_cache(maxsize=_SECRETS_REMEMBERED)
def keys_of(secret: bytes) -> Keys:
    # Imported here, because the cipher loads slowly and few functions ever see a STREAM packet.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    oer.octets(secret, SECRET_LENGTH)
    return Keys(
        cipher=AESGCM(hmac.digest(secret, _ENCRYPTION_LABEL, "sha256")),
        fulfillment=hmac.digest(secret, _FULFILLMENT_LABEL, "sha256"),
    )
