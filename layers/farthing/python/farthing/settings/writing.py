"""Settings of writing."""

from collections.abc import Mapping
from dataclasses import dataclass

from farthing.settings.declaring import setting
from farthing.settings.values import check_prices


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Writing:
    """What writing costs, who writes for free, and the purses that pay."""

    price_per_byte: int = setting(
        10, "Price of each byte of an event that is stored; 0 makes writing free"
    )
    price_per_tag: int = setting(
        750,
        "Least price of each indexed tag beyond the free ones. Short tags cost more to index than"
        " their bytes pay: an event with many of them costs at least this for each tag.",
    )
    free_tags: int = setting(16, "Number of indexed tags of an event that have no least price")
    free_pubkeys: frozenset[str] = setting(
        frozenset, "Public keys of authors who write for free, comma-separated, hex or npub"
    )
    blocked_pubkeys: frozenset[str] = setting(
        frozenset, "Public keys of authors who may not write at all, comma-separated, hex or npub"
    )
    price_kinds: Mapping[str, int] = setting(
        dict,
        'Flat prices by kind, as JSON: `{"1": 5000}`. They replace the price by size.',
        check_prices,
    )
    quote_seconds: int = setting(300, "Seconds for which a quoted price is meant to hold")
    purse_token: str = setting(
        "",
        "Bearer token with which a payment processor reports payments into purses; if empty, none"
        " is accepted",
        secret=True,
    )
    purse_idle_days: int = setting(
        0, "Days without a movement after which the money in a purse lapses; 0 is never"
    )
