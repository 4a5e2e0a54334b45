"""What the relay information document says of Aether."""

from typing import Any

from farthing.aether import gateway, noise
from farthing.relay.aether.owner import derive_keys
from farthing.settings import Settings


def aether_information(settings: Settings) -> dict[str, Any]:
    keys = derive_keys(settings.secret)
    is_off = settings.aether_noise == noise.Policy.OFF
    return gateway.information(
        pubkey=keys.pubkey,
        noise_pubkey=None if is_off else keys.noise_pubkey,
        ws=f"{settings.socket_url}/v1/ws",
    )
