"""Noise_XX_25519_ChaChaPoly_SHA256: the handshake, and messages with explicit counters.

A handshake is a value: each step takes a state and returns the next one. With `to_bytes` a caller
can seal the state and continue in another process. Keys, ephemeral keys and counters come from the
caller, who must never use an ephemeral key or a counter twice.
"""

import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from farthing.aether.errors import InvalidMessage
from farthing.aether.keys import noise_public_key

PROTOCOL: Final = "Noise_XX_25519_ChaChaPoly_SHA256"
KEY: Final = 32  # octets
TAG: Final = 16
COUNTER: Final = 8
MAX_MESSAGE: Final = 65535
MAX_INNER: Final = MAX_MESSAGE - TAG
MAX_COUNTER: Final = 2**64 - 2  # Noise reserves the last number

# The XX pattern: the content of each message, in turn from the initiator and the responder.
_MESSAGES: Final = (("e",), ("e", "ee", "s", "es"), ("s", "se"))
# Our role, the number of messages, the nonce, which of the last four keys are set, and six times 32
# octets.
_STATE = struct.Struct(">?BBB" + f"{KEY}s" * 6)

_u32be = struct.Struct(">I").pack
_u64be = struct.Struct(">Q")
_nonce = struct.Struct("<4xQ").pack


class Policy(StrEnum):
    """Whether a relay offers Noise."""

    OPTIONAL = "optional"
    REQUIRED = "required"
    OFF = "off"


class NoiseRefused(InvalidMessage):
    """An invalid handshake or message: altered, replayed, out of turn or malformed."""


def prologue(hello: bytes, welcome: bytes) -> bytes:
    """The octets that both sides must share: if HELLO or WELCOME is altered, the handshake fails.

    The octets are those of the JSON messages, independent of the frames around them.
    """
    return _u32be(len(hello)) + hello + _u32be(len(welcome)) + welcome


@dataclass(frozen=True, slots=True)
class Session:
    """The keys after the handshake, one for each direction, and the proven public key of the other
    side."""

    send_key: bytes
    receive_key: bytes
    remote_static: bytes
    handshake_hash: bytes

    def to_bytes(self) -> bytes:
        """The session with its secrets, for a caller who seals it."""
        return self.send_key + self.receive_key + self.remote_static + self.handshake_hash

    @classmethod
    def from_bytes(cls, octets: bytes) -> "Session":
        if len(octets) != 4 * KEY:
            raise ValueError(f"a session has {4 * KEY} octets, got {len(octets)}")
        return cls(*(octets[at : at + KEY] for at in range(0, 4 * KEY, KEY)))


@dataclass(frozen=True, slots=True)
class Handshake:
    """The state between two messages. A key that is not known yet is empty."""

    initiator: bool
    messages: int  # number of messages so far
    nonce: int
    chaining_key: bytes
    hash: bytes
    key: bytes = b""
    ephemeral: bytes = b""  # private
    remote_ephemeral: bytes = b""
    remote_static: bytes = b""

    def to_bytes(self) -> bytes:
        """The state with its secrets, for a caller who seals it."""
        optional = (self.key, self.ephemeral, self.remote_ephemeral, self.remote_static)
        return _STATE.pack(
            self.initiator,
            self.messages,
            self.nonce,
            sum(1 << at for at, value in enumerate(optional) if value),
            self.chaining_key,
            self.hash,
            *optional,  # filled up with zeros
        )

    @classmethod
    def from_bytes(cls, octets: bytes) -> "Handshake":
        try:
            initiator, messages, nonce, there, chaining_key, digest, *optional = _STATE.unpack(
                octets
            )
        except struct.error:
            raise ValueError(f"a handshake has {_STATE.size} octets, got {len(octets)}") from None
        values = (value if there >> at & 1 else b"" for at, value in enumerate(optional))
        return cls(initiator, messages, nonce, chaining_key, digest, *values)

    @property
    def is_finished(self) -> bool:
        return self.messages == len(_MESSAGES)

    @property
    def is_our_turn(self) -> bool:
        return not self.is_finished and (self.messages % 2 == 0) is self.initiator


def start(*, initiator: bool, prologue: bytes) -> Handshake:
    digest = (
        PROTOCOL.encode()
    )  # as long as a hash, so Noise uses the name itself instead of its hash
    return _mix_hash(Handshake(initiator, 0, 0, digest, digest), prologue)


def write_message(
    state: Handshake, static: bytes, ephemeral: bytes = b"", payload: bytes = b""
) -> tuple[Handshake, bytes]:
    """The next message of the handshake. The first one from each side needs a new ephemeral key."""
    if not state.is_our_turn:
        raise NoiseRefused("noise: expected a message from the other side")
    parts = []
    for symbol in _MESSAGES[state.messages]:
        if symbol == "e":
            public = noise_public_key(ephemeral)
            state = _mix_hash(replace(state, ephemeral=ephemeral), public)
            parts.append(public)
        elif symbol == "s":
            state, sealed = _encrypt_and_hash(state, noise_public_key(static))
            parts.append(sealed)
        else:
            state = _mix_key(state, _exchange(state, static, symbol))
    state, sealed = _encrypt_and_hash(state, payload)
    message = b"".join((*parts, sealed))
    if len(message) > MAX_MESSAGE:
        raise NoiseRefused(f"noise: expected at most {MAX_MESSAGE} octets")
    return replace(state, messages=state.messages + 1), message


def read_message(state: Handshake, static: bytes, message: bytes) -> tuple[Handshake, bytes]:
    """The state after a message of the other side, and the message's payload."""
    if state.is_our_turn or state.is_finished:
        raise NoiseRefused("noise: the handshake expects no message now")
    if len(message) > MAX_MESSAGE:
        raise NoiseRefused(f"noise: expected at most {MAX_MESSAGE} octets")
    for symbol in _MESSAGES[state.messages]:
        if symbol == "e":
            public, message = _split_off(message, KEY)
            state = _mix_hash(replace(state, remote_ephemeral=public), public)
        elif symbol == "s":
            sealed, message = _split_off(message, KEY + TAG)
            state, public = _decrypt_and_hash(state, sealed)
            state = replace(state, remote_static=public)
        else:
            state = _mix_key(state, _exchange(state, static, symbol))
    state, payload = _decrypt_and_hash(state, message)
    return replace(state, messages=state.messages + 1), payload


def finish(state: Handshake) -> Session:
    if not state.is_finished:
        raise NoiseRefused("noise: the handshake is not finished")
    from_initiator, from_responder = _hkdf(state.chaining_key, b"")
    send, receive = (
        (from_initiator, from_responder) if state.initiator else (from_responder, from_initiator)
    )
    return Session(send, receive, state.remote_static, state.hash)


def respond_from(
    state: Handshake, message_1: bytes, *, static: bytes, ephemeral: bytes
) -> tuple[Handshake, bytes]:
    """The relay's first step, from a state that `start` made and the caller has stored."""
    state, payload = read_message(state, static, message_1)
    _expect_empty(payload)
    return write_message(state, static, ephemeral)


def complete(
    state: Handshake, message_3: bytes, *, static: bytes, claimed: str | None = None
) -> Session:
    """The relay's second step. `claimed` is the key that the client named in HELLO, if any."""
    state, payload = read_message(state, static, message_3)
    _expect_empty(payload)
    if claimed is not None and claimed != state.remote_static.hex():
        raise NoiseRefused("noise: expected the key that HELLO named, another was proved")
    return finish(state)


def seal(key: bytes, counter: int, inner: bytes) -> bytes:
    """The payload of a NOISE message: the counter, then the sealed inner frame."""
    if len(inner) > MAX_INNER:
        raise NoiseRefused(f"noise: expected an inner frame of at most {MAX_INNER} octets")
    if not 0 <= counter <= MAX_COUNTER:
        raise NoiseRefused("noise: the counter has run out")
    return _u64be.pack(counter) + ChaCha20Poly1305(key).encrypt(_nonce(counter), inner, None)


def counter_of(payload: bytes) -> int:
    """The counter that a payload claims; `unseal` proves it."""
    if not COUNTER + TAG <= len(payload) <= COUNTER + MAX_MESSAGE:
        raise NoiseRefused("noise: expected a counter and a sealed frame")
    counter: int = _u64be.unpack_from(payload)[0]
    if counter > MAX_COUNTER:
        raise NoiseRefused("noise: the last counter is reserved")
    return counter


def unseal(key: bytes, payload: bytes) -> tuple[int, bytes]:
    """The counter and the inner frame. Each counter may be used once, which the caller checks."""
    counter = counter_of(payload)
    return counter, _decrypt(key, counter, payload[COUNTER:], None)


def _expect_empty(payload: bytes) -> None:
    if payload:
        raise NoiseRefused("noise: expected an empty payload in the handshake")


def _split_off(message: bytes, size: int) -> tuple[bytes, bytes]:
    if len(message) < size:
        raise NoiseRefused("noise: the handshake message is too short")
    return message[:size], message[size:]


def _exchange(state: Handshake, static: bytes, symbol: str) -> bytes:
    """The symbol names the initiator's key first, then the responder's."""
    ours, theirs = symbol[0], symbol[1]
    if not state.initiator:
        ours, theirs = theirs, ours
    private = state.ephemeral if ours == "e" else static
    public = state.remote_ephemeral if theirs == "e" else state.remote_static
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:  # a point of small order: everybody would know the secret
        raise NoiseRefused("noise: the other side's key is weak") from None


def _mix_hash(state: Handshake, data: bytes) -> Handshake:
    return replace(state, hash=sha256(state.hash + data).digest())


def _mix_key(state: Handshake, secret: bytes) -> Handshake:
    chaining_key, key = _hkdf(state.chaining_key, secret)
    return replace(state, chaining_key=chaining_key, key=key, nonce=0)


def _hkdf(chaining_key: bytes, material: bytes) -> Iterator[bytes]:
    """Noise's HKDF with two outputs."""
    temporary = hmac.digest(chaining_key, material, "sha256")
    first = hmac.digest(temporary, b"\x01", "sha256")
    yield first
    yield hmac.digest(temporary, first + b"\x02", "sha256")


def _encrypt_and_hash(state: Handshake, plain: bytes) -> tuple[Handshake, bytes]:
    if not state.key:
        return _mix_hash(state, plain), plain
    sealed = ChaCha20Poly1305(state.key).encrypt(_nonce(state.nonce), plain, state.hash)
    return _mix_hash(replace(state, nonce=state.nonce + 1), sealed), sealed


def _decrypt_and_hash(state: Handshake, sealed: bytes) -> tuple[Handshake, bytes]:
    if not state.key:
        return _mix_hash(state, sealed), sealed
    plain = _decrypt(state.key, state.nonce, sealed, state.hash)
    return _mix_hash(replace(state, nonce=state.nonce + 1), sealed), plain


def _decrypt(key: bytes, nonce: int, sealed: bytes, associated: bytes | None) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(_nonce(nonce), sealed, associated)
    except InvalidTag:
        raise NoiseRefused("noise: the message was altered, or sealed with another key") from None
