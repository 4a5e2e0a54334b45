"""The agent's own keys in Aether, all derived from the owner's Nostr key.

A process that must not hold the owner's key gets derived keys: the public keys alone, or also the
secret keys for encrypted sockets and quotes.
"""

import hmac
from dataclasses import dataclass, field
from typing import Final

from farthing.aether import keys
from farthing.context import Agent
from farthing.ilp.condition import quote_key
from farthing.settings import InvalidSetting, Settings

_STATE_LABEL: Final = b"farthing/noise-state/v1"


@dataclass(frozen=True, slots=True)
class OwnerKeys:
    pubkey: str
    noise_pubkey: str
    # Noise's static key, the key that seals stored Noise states, and the key of quotes; empty in a
    # process that has only the public keys.
    secrets: tuple[bytes, ...] = field(repr=False)

    @property
    def noise_static(self) -> bytes:
        return self._secret(0)

    @property
    def state_key(self) -> bytes:
        return self._secret(1)

    @property
    def quote_key(self) -> bytes:
        return self._secret(2)

    def _secret(self, number: int) -> bytes:
        if not self.secrets:
            raise InvalidSetting("FARTHING_DERIVED_KEYS: expected five keys, got the public two")
        return self.secrets[number]

    def write(self, *, public: bool) -> str:
        """The keys in the form of `FARTHING_DERIVED_KEYS`."""
        secrets = () if public else (each.hex() for each in self.secrets)
        return ",".join((self.pubkey, self.noise_pubkey, *secrets))


def owner_keys(agent: Agent) -> OwnerKeys:
    return agent.part(_keys_of)


def _keys_of(agent: Agent) -> OwnerKeys:
    return keys_of(agent.settings)


def keys_of(settings: Settings) -> OwnerKeys:
    if settings.secret_key or not settings.derived_keys:
        return derive_keys(settings.secret)
    pubkey, noise_pubkey, *secrets = settings.derived_keys.split(",")
    return OwnerKeys(pubkey, noise_pubkey, tuple(map(bytes.fromhex, secrets)))


def derive_keys(secret: bytes) -> OwnerKeys:
    static = keys.noise_static(secret)
    return OwnerKeys(
        keys.public_key(keys.owner_seed(secret)),
        keys.noise_public_key(static).hex(),
        (static, hmac.digest(secret, _STATE_LABEL, "sha256"), quote_key(secret)),
    )
