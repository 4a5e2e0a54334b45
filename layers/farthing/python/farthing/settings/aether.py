"""Settings of Aether."""

from collections.abc import Mapping
from dataclasses import dataclass

from farthing.settings.declaring import setting
from farthing.settings.values import at_most, check_prices, one_of

# API Gateway ends a request after 30 seconds.
LONGEST_STREAM_SECONDS = 25


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Aether:
    """Aether, the second event format beside Nostr's."""

    aether: bool = setting(True, "Whether Aether events are served beside Nostr events; `1` or `0`")
    aether_noise: str = setting(
        "optional",
        "Whether Aether sockets are encrypted with Noise: `optional`, `required` or `off`",
        one_of("optional", "required", "off"),
    )
    aether_future_seconds: int = setting(
        60, "Seconds that created_at of an Aether event may lie in the future"
    )
    aether_price_kinds: Mapping[str, int] = setting(
        dict,
        'Flat prices of Aether events by kind, as JSON: `{"1": 5000}`. They replace the price by'
        " size.",
        check_prices,
    )
    aether_stream_seconds: int = setting(
        0,
        "Seconds that GET /v1/stream in the cloud waits for new events before it answers; on one"
        " machine the answer stays open",
        at_most(LONGEST_STREAM_SECONDS),
    )
    aether_subscription_seconds: int = setting(
        3600, "Seconds after which an HTTP subscription that nobody reads is forgotten"
    )
    aether_max_subscriptions: int = setting(
        1000, "Number of open HTTP subscriptions of one address"
    )
