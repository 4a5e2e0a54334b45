"""The part of the relay information document about Aether."""

from typing import Any

from farthing.aether import gateway, noise
from farthing.relay.aether.owner import keys_of
from farthing.settings import Settings


def aether_information(settings: Settings) -> dict[str, Any]:
    keys = keys_of(settings)
    is_off = settings.aether_noise == noise.Policy.OFF
    return gateway.information(
        pubkey=keys.pubkey,
        noise_pubkey=None if is_off else keys.noise_pubkey,
        ws=f"{settings.socket_url}/v1/ws",
    )
