"""Settings of broadcasting."""

from collections.abc import Mapping
from dataclasses import dataclass

from farthing.settings.declaring import setting
from farthing.settings.values import at_most, between, check_shares, each_url_of


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Broadcasting:
    """The owner's events, placed and paid for at other relays."""

    broadcast_all: bool = setting(
        False, "Whether every event that the owner publishes here is broadcast; `1` or `0`"
    )
    broadcast_hubs: tuple[str, ...] = setting(
        tuple,
        "WebSocket URLs of relays that every broadcast goes to, comma-separated",
        each_url_of("ws", "wss"),
    )
    broadcast_shares: Mapping[str, int] = setting(
        lambda: {"mentioned": 50, "followers": 30, "hubs": 20},
        "Percentages of a broadcast's budget and number of relays that go to relays of mentioned"
        ' keys, of followers, and to hubs, as JSON. The default is `{"mentioned": 50,'
        ' "followers": 30, "hubs": 20}`.',
        check_shares,
    )
    broadcast_relays: int = setting(
        50, "Number of relays that one event is broadcast to, at most", at_most(1000)
    )
    broadcast_event_budget: int = setting(10**7, "Amount that broadcasting one event may cost")
    broadcast_day_budget: int = setting(
        10**8, "Amount that all broadcasts of one day (UTC) may cost"
    )
    broadcast_attempts: int = setting(
        8, "Number of attempts to broadcast an event to one relay, at most", between(1, 1000)
    )
    broadcast_retry_seconds: int = setting(
        30,
        "Seconds before the second attempt at a relay of a broadcast; they double each time, to a"
        " day at most",
        between(1, 24 * 3600),
    )
    broadcast_check_percent: int = setting(
        20, "Percentage of the events paid for by broadcasts that are read back", at_most(100)
    )
    broadcast_check_seconds: int = setting(
        3600,
        "Seconds after which an event that a broadcast paid for is read back",
        at_most(30 * 24 * 3600),
    )
    broadcast_max_lost_percent: int = setting(
        10,
        "Percentage of the events read back that a paid relay may have lost; above it, no broadcast"
        " pays the relay",
        at_most(100),
    )
    broadcast_pardon_days: int = setting(
        30, "Days after which a relay that has lost paid events may be paid again"
    )
