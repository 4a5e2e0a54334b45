"""Sealing Noise states for the sessions table. The sealing key is derived from the owner's key, and
each state is bound to its connection."""

import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from farthing.aether.noise import KEY, Handshake, NoiseRefused, Session
from farthing.context import Agent
from farthing.relay.aether.owner import owner_keys

_NONCE: Final = 12
# Whether a key follows the state.
_CLAIMED: Final = b"\x01"
_UNCLAIMED: Final = b"\x00"


def seal_handshake(
    agent: Agent, connection_id: str, state: Handshake, claimed: str | None
) -> bytes:
    """Seal a handshake, with the key that the client has named in HELLO, if any."""
    octets = state.to_bytes()
    if claimed is not None:
        return _seal(agent, connection_id, _CLAIMED + octets + bytes.fromhex(claimed))
    return _seal(agent, connection_id, _UNCLAIMED + octets)


def open_handshake(agent: Agent, connection_id: str, sealed: bytes) -> tuple[Handshake, str | None]:
    octets = _open(agent, connection_id, sealed)
    claims, state = octets[:1] == _CLAIMED, octets[1:]
    if not claims:
        return Handshake.from_bytes(state), None
    return Handshake.from_bytes(state[:-KEY]), state[-KEY:].hex()


def seal_session(agent: Agent, connection_id: str, session: Session) -> bytes:
    return _seal(agent, connection_id, session.to_bytes())


def open_session(agent: Agent, connection_id: str, sealed: bytes) -> Session:
    return Session.from_bytes(_open(agent, connection_id, sealed))


def _seal(agent: Agent, connection_id: str, octets: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE)
    cipher = ChaCha20Poly1305(owner_keys(agent).state_key)
    return nonce + cipher.encrypt(nonce, octets, connection_id.encode())


def _open(agent: Agent, connection_id: str, sealed: bytes) -> bytes:
    cipher = ChaCha20Poly1305(owner_keys(agent).state_key)
    try:
        return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], connection_id.encode())
    except InvalidTag:  # the owner's key has changed meanwhile
        raise NoiseRefused("noise: the session is lost, connect again") from None
