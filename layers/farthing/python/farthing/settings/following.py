"""Settings of following."""

from dataclasses import dataclass

from farthing.settings.declaring import setting
from farthing.settings.values import at_most, between, check_public_kinds, one_of


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Following:
    """The events of followed keys, read at their own relays."""

    follow_content: str = setting(
        "read",
        "What the agent does with the events of followed keys: `off`, nothing; `read`, only show"
        " them by `farthing feed`; `cache`, store them here for a time; `rebroadcast`, also pay for"
        " them at other relays",
        one_of("off", "read", "cache", "rebroadcast"),
    )
    follow_kinds: frozenset[int] = setting(
        lambda: frozenset({0, 1, 3, 5, 6, 7, 10002, 10032, 30023}),
        "Kinds of events that are read of followed keys, comma-separated. The default is"
        " 0,1,3,5,6,7,10002,10032,30023. Private kinds are refused.",
        check_public_kinds,
    )
    follow_days: int = setting(
        30, "Days for which a cached event of a followed key is kept", at_most(3650)
    )
    follow_bytes: int = setting(
        10 * 1024 * 1024, "Bytes of cached events of one followed key, at most"
    )
    follow_relays_per_key: int = setting(
        3, "Number of relays at which one followed key is read, at most"
    )
    max_feed_relays: int = setting(
        64, "Number of relays at which followed keys are read, at most", at_most(1000)
    )
    max_feed_events: int = setting(
        20_000,
        "Number of events that one relay of followed keys may send in an hour; in the cloud, in"
        " one round of five minutes",
        at_most(10**9),
    )
    max_feed_bytes: int = setting(
        32 * 1024 * 1024,
        "Bytes that one relay of followed keys may send in an hour; in the cloud, in one round",
    )
    max_feed_total_bytes: int = setting(
        256 * 1024 * 1024,
        "Bytes that all relays of followed keys together may send in an hour; in the cloud, in one"
        " round. Half of them is set aside in equal parts for `FARTHING_MAX_FEED_RELAYS` relays, so"
        " relays that flood leave something for the others.",
    )
    max_feed_faults: int = setting(
        50,
        "Number of events with a wrong signature, author or kind after which a relay of followed"
        " keys is not read for an hour",
    )
    feed_seconds: int = setting(
        60, "Seconds in which a relay of followed keys must finish one answer", between(1, 90)
    )
    feed_overlap_seconds: int = setting(
        3600,
        "Seconds by which each reading of a relay overlaps the previous one, if the relay has"
        " neither a changes feed nor negentropy",
    )
    feed_retry_seconds: int = setting(
        600,
        "Seconds between two attempts at a failing relay of followed keys, at most",
        between(1, 24 * 3600),
    )
