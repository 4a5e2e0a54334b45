"""Settings of paid subscriptions."""

from dataclasses import dataclass

from farthing.btp_nips.models import TTL_MAX, TTL_MIN, WINDOW_MAX, Model
from farthing.settings.declaring import setting
from farthing.settings.values import between, each_of


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Subscriptions:
    """Paid subscriptions (BTP-NIPs): models, fees and limits."""

    subscription_models: tuple[str, ...] = setting(
        lambda: tuple(map(str, Model)),
        "Models of paid subscriptions that are offered, comma-separated. If empty, none is offered."
        " If not set, all four are: `free,one_time,streaming,hybrid`.",
        each_of(*Model),
    )
    subscription_base_fee: int = setting(
        1000, "Price of a subscription of model `one_time`, before its time and its complexity"
    )
    subscription_minute_fee: int = setting(
        1, "Price of each minute of a subscription of model `one_time`"
    )
    subscription_complexity_fee: int = setting(
        100, "Price of each value in the filters of a subscription of model `one_time`"
    )
    subscription_setup_fee: int = setting(1000, "Price of a subscription of model `streaming`")
    subscription_event_fee: int = setting(
        10, "Price of each event of a subscription of model `streaming`"
    )
    subscription_hybrid_fee: int = setting(10000, "Price of a subscription of model `hybrid`")
    subscription_hybrid_event_fee: int = setting(
        5, "Price of each event of a subscription of model `hybrid`"
    )
    subscription_default_ttl: int = setting(
        3600,
        "Seconds that a paid subscription lasts if its REQ names no ttl, from 60 to 86400",
        between(TTL_MIN, TTL_MAX),
    )
    subscription_max_ttl: int = setting(
        86400,
        "Most seconds that a paid subscription may last, from 60 to 86400",
        between(TTL_MIN, TTL_MAX),
    )
    subscription_free_events: int = setting(
        100, "Events that a subscription of model `free` delivers before it is closed"
    )
    subscription_free_ttl: int = setting(
        3600,
        "Most seconds that a subscription of model `free` may last, from 60 to 86400",
        between(TTL_MIN, TTL_MAX),
    )
    subscription_max: int = setting(10, "Open paid subscriptions of one owner")
    subscription_per_peer: int = setting(
        1000, "Open paid subscriptions whose packets came from one peer"
    )
    subscription_max_stored: int = setting(
        500,
        "Stored events that a paid subscription begins with at most, all filters together, up to"
        " 10000",
        # Their ids are one item, and an item of DynamoDB has at most 400 KB.
        between(0, 10_000),
    )
    subscription_window: int = setting(
        10,
        "Delivery packets of one subscription that may be on their way at once, at most 10",
        between(1, WINDOW_MAX),
    )
    subscription_packet_ms: int = setting(
        15000, "Milliseconds until a delivery packet to a subscriber expires"
    )
    subscription_handshake_ms: int = setting(
        5000, "Milliseconds that a subscriber has to prove that it receives at its address"
    )
    subscription_give_up_seconds: int = setting(
        3600, "Seconds after which a subscription is closed if its subscriber stays unreachable"
    )
    subscription_attempts: int = setting(
        5, "Attempts to deliver an event that its subscriber rejects, before it is skipped"
    )
    subscription_replays: int = setting(
        1000, "Events that a paid subscription may receive again for nothing"
    )
    subscription_skew_seconds: int = setting(
        300, "Seconds by which the timestamp of a BTP-NIPs message may differ from our clock"
    )
    sweep_seconds: int = setting(
        2,
        "Seconds between two sweeps on one machine. A sweep releases expired packets and ends paid"
        " subscriptions whose time is over.",
        between(1, 60),
    )
    subscription_propagate: bool = setting(
        False,
        "Whether paid subscriptions are passed on to followed relays, out of a budget that their"
        " owner names; `1` or `0`",
    )
