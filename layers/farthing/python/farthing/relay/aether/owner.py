"""The agent's own keys in Aether, all derived from the owner's Nostr key."""

import hmac
from dataclasses import dataclass, field
from typing import Final

from farthing.aether import keys
from farthing.context import Agent

_STATE_LABEL: Final = b"farthing/noise-state/v1"


@dataclass(frozen=True, slots=True)
class OwnerKeys:
    pubkey: str
    noise_pubkey: str
    noise_static: bytes = field(repr=False)
    # Seals what is kept of Noise sessions.
    state_key: bytes = field(repr=False)


def owner_keys(agent: Agent) -> OwnerKeys:
    return agent.part(_keys_of)


def _keys_of(agent: Agent) -> OwnerKeys:
    return derive_keys(agent.settings.secret)


def derive_keys(secret: bytes) -> OwnerKeys:
    static = keys.noise_static(secret)
    return OwnerKeys(
        keys.public_key(keys.owner_seed(secret)),
        keys.noise_public_key(static).hex(),
        static,
        hmac.digest(secret, _STATE_LABEL, "sha256"),
    )
