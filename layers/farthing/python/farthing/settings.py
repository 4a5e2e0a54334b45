"""Every setting, each an environment variable `FARTHING_<NAME>`, in one typed object.

The table in docs/settings.md and the relay information document are made from what stands here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

from farthing.btp_nips.fees import FeeSchedule
from farthing.btp_nips.messages import TTL_MAX, TTL_MIN, WINDOW_MAX, Model
from farthing.ilp import address
from farthing.ilp.tariff import Tariff
from farthing.nostr.events import public_key_of
from farthing.setting_values import (
    READERS,
    InvalidValue,
    at_most,
    between,
    check_derived_keys,
    check_json_object,
    check_networks,
    check_number,
    check_present,
    check_prices,
    check_public_key,
    check_public_kinds,
    check_secret_key,
    check_shares,
    check_table_prefix,
    check_token,
    each_of,
    each_url_of,
    one_of,
    read_secret_key,
    url_of,
)

PREFIX = "FARTHING_"
# Variables of other readers: functions, the deployment's files, the examples and the tests.
_NOT_SETTINGS = frozenset(
    {"BRAKED", "CONFIG", "CONNECTIONS_URL", "DOMAIN", "DYNAMODB_LOCAL", "EMULATOR", "KEY_VERSION",
     "NODE_MODULES", "ORIGIN_SECRET", "TOKEN", "UPSTREAM"}
)  # fmt: skip
# API Gateway ends a request after 30 seconds.
LONGEST_STREAM_SECONDS = 25
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class InvalidSetting(ValueError):
    """A setting that cannot be used; the message names it."""


def _setting(
    default: Any,
    about: str,
    check: Callable[[Any], None] | None = None,
    *,
    read: Callable[[str], Any] | None = None,
    secret: bool = False,
) -> Any:
    """A setting. `check` refuses values of the right type; an empty text is never checked, unless
    the default is not empty. `read` replaces the reader of the type."""
    about_it = {"about": about, "check": check, "read": read}
    if callable(default):
        return field(default_factory=default, metadata=about_it, repr=not secret)
    return field(default=default, metadata=about_it, repr=not secret)


@dataclass(frozen=True)
class Settings:
    # Identity
    secret_key: str = _setting(
        "",
        "Nostr key of the owner: 64 hex digits, or an nsec. The local server makes one on its"
        " first run and keeps it in the data folder.",
        check_secret_key,
        read=read_secret_key,
        secret=True,
    )
    public_key: str = _setting(
        "",
        "Public key of the owner, 64 hex digits, for a process that must not hold the secret key."
        " If empty, it follows from the secret key.",
        check_public_key,
    )
    derived_keys: str = _setting(
        "",
        "Keys that follow from the owner's secret key, in hex and comma-separated, for a process"
        " that must not hold that key: Aether's public key and Noise's, and where sockets are"
        " encrypted or prices quoted the three secret ones. If empty, they are derived.",
        check_derived_keys,
        secret=True,
    )
    relay_url: str = _setting(
        "",
        "Public WebSocket URL of the relay, such as `wss://relay.example.org`. AUTH accepts no"
        " other. If empty, the address that the local server listens on.",
        url_of("ws", "wss"),
    )
    web_url: str = _setting(
        "",
        "Public HTTP URL. If empty, the WebSocket URL with `http` in place of `ws`.",
        url_of("http", "https"),
    )
    name: str = _setting("Farthing", "Name of the relay in the relay information document (NIP-11)")
    description: str = _setting(
        "A Nostr relay where a farthing buys one stored event.",
        "Description of the relay in the relay information document",
    )
    contact: str = _setting(
        "", "URI in the relay information document by which people reach the operator"
    )
    icon: str = _setting("", "URL of the relay's icon in the relay information document")
    list_changes_feed: bool = _setting(
        True,
        'Whether `supported_nips` lists `"CF"`, as the changes feed demands. Some clients accept'
        " numbers only and then reject the whole document: `0` helps them. The field"
        " `changes_feed` is there in either case.",
    )

    # Where it runs
    host: str = _setting("127.0.0.1", "Address that the local server listens on", check_present)
    port: int = _setting(7777, "Port of the local server, for HTTP and WebSocket", at_most(65535))
    data: str = _setting(
        ".farthing", "Folder in which the local server keeps all its data", check_present
    )
    workers: int = _setting(8, "Number of threads in which the local server handles reads")
    table_prefix: str = _setting(
        "farthing-", "Prefix of the names of the DynamoDB tables", check_table_prefix
    )
    trusted_proxies: tuple[str, ...] = _setting(
        tuple,
        "Addresses or networks of reverse proxies, comma-separated, whose `Forwarded` and"
        " `X-Forwarded-For` headers name the client's address",
        check_networks,
    )
    metrics_token: str = _setting(
        "",
        "Bearer token for `GET /metrics`. If empty, only this machine may read the metrics.",
        check_token,
        secret=True,
    )
    log_level: str = _setting(
        "info",
        "Least level of the log lines that are written: `debug`, `info`, `warning` or `error`",
        one_of("debug", "info", "warning", "error"),
    )
    log_format: str = _setting(
        "text", "Format of the log: `text`, or `json` with one object per line",
        one_of("text", "json"),
    )  # fmt: skip

    # Who may write
    price_per_byte: int = _setting(
        10, "Price of each byte of an event that is stored; 0 makes writing free"
    )
    price_per_tag: int = _setting(
        750,
        "Least price of each indexed tag beyond the free ones: the price by size is raised to it"
        " where short tags would cost more to index than their bytes pay",
    )
    free_tags: int = _setting(16, "Number of indexed tags of an event that have no least price")
    free_pubkeys: frozenset[str] = _setting(
        frozenset, "Public keys of authors who write for free, comma-separated, hex or npub"
    )
    blocked_pubkeys: frozenset[str] = _setting(
        frozenset, "Public keys of authors who may not write at all, comma-separated, hex or npub"
    )
    price_kinds: Mapping[str, int] = _setting(
        dict,
        'Flat prices by kind, as JSON: `{"1": 5000}`. They replace the price by size.',
        check_prices,
    )

    # Interledger
    ilp_address: str = _setting("", "ILP address of this agent; if empty, `g.agent.<public key>`")
    asset_code: str = _setting(
        "USD", "Code of the asset in which prices and balances are kept", check_present
    )
    asset_scale: int = _setting(
        9, "Decimal places of the asset: with 9, one unit is a billionth", at_most(255)
    )
    peer_token: str = _setting(
        "",
        "Bearer token of the peer `local`. The local server makes one on its first run and keeps it"
        " in the data folder.",
        secret=True,
    )
    max_balance: int = _setting(
        10**9,
        "Amount that a peer may owe us, if its own record has no limit. The default, a dollar, is"
        " credit for a stranger; with 0, peers pay in advance.",
    )
    local_max_balance: int = _setting(
        10**15, "Amount that the peer `local`, for our own clients on one machine, may owe us"
    )
    follow_max_balance: int = _setting(
        10**9, "Amount that a peer from the follow list may owe us until trust has been computed"
    )
    max_packet: int = _setting(
        10**13, "Largest amount of one packet from a peer, if its own record has no limit"
    )
    packets_per_minute: int = _setting(10000, "Number of packets that a peer may send per minute")
    peer_cache_seconds: int = _setting(
        5, "Seconds for which a peer's record is cached; a removed peer is refused after them"
    )
    min_delivery_ms: int = _setting(
        100, "Milliseconds before its expiry by which a packet for us must have arrived"
    )
    forward_fee: int = _setting(0, "Fixed fee for each packet that we forward")
    forward_fee_ppm: int = _setting(
        1000,
        "Fee for each packet that we forward, in millionths of its amount: 1000 is 0.1 percent",
        at_most(1_000_000),
    )
    forward_min_fee: int = _setting(
        1,
        "Least fee for each packet that we forward. Not charged if its amount is 0, or if"
        " FARTHING_FORWARD_FEE and FARTHING_FORWARD_FEE_PPM are both 0.",
    )
    free_packets_per_minute: int = _setting(
        1000, "Number of packets of amount 0 that we forward for a peer per minute"
    )
    forward_margin_ms: int = _setting(
        1000, "Milliseconds by which a forwarded packet expires earlier at the next hop"
    )
    forward_max_ms: int = _setting(
        30000, "Longest time in milliseconds that we wait for the answer of the next hop"
    )
    peer_with_follows: bool = _setting(
        False, "Whether a followed agent becomes an active peer at once (`1`) or a proposal (`0`)"
    )
    upkeep_seconds: int = _setting(
        600,
        "Seconds between two rounds of upkeep on one machine: reading the relays of followed"
        " agents, announcing routes, settling; 0 is never",
    )
    max_gathered_relays: int = _setting(
        200, "Number of followed agents whose relays one round of upkeep reads"
    )
    max_gathered_events: int = _setting(
        5000, "Number of events that upkeep reads from the relay of one followed agent in a round"
    )
    max_gathered_bytes: int = _setting(
        8 * 1024 * 1024, "Bytes that upkeep reads from the relay of one followed agent in a round"
    )
    max_gathered_event_bytes: int = _setting(
        65536, "Bytes of an event that upkeep keeps of somebody whom the owner does not follow"
    )
    gather_seconds: int = _setting(
        10, "Seconds that upkeep waits for the relay of one followed agent in a round"
    )
    allow_private_hosts: bool = _setting(
        False,
        "Whether peers, callbacks, settlement engines and relays may be at private, loopback or"
        " link-local addresses; `1` on a test network",
    )
    route_cache_seconds: int = _setting(
        10, "Seconds for which routes are cached; a new routing table is used after them"
    )
    max_announced_routes: int = _setting(
        1000, "Number of routes that our own announcement (kind 10033) holds at most"
    )
    max_shrink_percent: int = _setting(
        50,
        "Percentage by which a new routing table may be smaller than the present one; a smaller"
        " table is refused",
        at_most(100),
    )
    settlement_url: str = _setting(
        "", "URL of the settlement engine (RFC 0038) that pays peers for us",
        url_of("http", "https"),
    )  # fmt: skip
    settlement_token: str = _setting(
        "",
        "Bearer token with which the settlement engine reports payments of peers",
        secret=True,
    )
    settlement_threshold: int = _setting(
        10**9, "Amount that we may owe a peer before we ask the settlement engine to pay"
    )
    quote_seconds: int = _setting(300, "Seconds for which a quoted price is meant to hold")
    profile: str = _setting(
        "",
        "Content of the owner's profile (kind 0), as a JSON object; if empty, none is published",
        check_json_object,
    )
    purse_token: str = _setting(
        "",
        "Bearer token with which a payment processor reports payments into purses; if empty, none"
        " is accepted",
        secret=True,
    )
    purse_idle_days: int = _setting(
        0, "Days without a movement after which the money in a purse lapses; 0 is never"
    )

    # Aether
    aether: bool = _setting(
        True, "Whether Aether events are served beside Nostr events; `1` or `0`"
    )
    aether_noise: str = _setting(
        "optional",
        "Whether Aether sockets are encrypted with Noise: `optional`, `required` or `off`",
        one_of("optional", "required", "off"),
    )
    aether_future_seconds: int = _setting(
        60, "Seconds that created_at of an Aether event may lie in the future"
    )
    aether_price_kinds: Mapping[str, int] = _setting(
        dict,
        'Flat prices of Aether events by kind, as JSON: `{"1": 5000}`. They replace the price by'
        " size.",
        check_prices,
    )
    aether_stream_seconds: int = _setting(
        0,
        "Seconds that GET /v1/stream in the cloud waits for new events before it answers; on one"
        " machine the answer stays open",
        at_most(LONGEST_STREAM_SECONDS),
    )
    aether_subscription_seconds: int = _setting(
        3600, "Seconds after which an HTTP subscription that nobody reads is forgotten"
    )

    # Following: the events of followed keys, read at their own relays
    follow_content: str = _setting(
        "off",
        "What the agent does with the events of followed keys: `off`; `read`, only for"
        " `farthing feed`; `cache`, store them here for a time; `rebroadcast`, also pay for them"
        " at other relays",
        one_of("off", "read", "cache", "rebroadcast"),
    )
    follow_kinds: frozenset[int] = _setting(
        lambda: frozenset({0, 1, 3, 5, 6, 7, 10002, 10032, 30023}),
        "Kinds of events that are read of followed keys, comma-separated. The default is"
        " 0,1,3,5,6,7,10002,10032,30023. Private kinds are refused.",
        check_public_kinds,
    )
    follow_days: int = _setting(
        30, "Days for which a cached event of a followed key is kept", at_most(3650)
    )
    follow_bytes: int = _setting(
        10 * 1024 * 1024, "Bytes of cached events of one followed key, at most"
    )
    follow_relays_per_key: int = _setting(
        3, "Number of relays at which one followed key is read, at most"
    )
    max_feed_relays: int = _setting(64, "Number of relays at which followed keys are read, at most")
    max_feed_events: int = _setting(
        20_000, "Number of events that one relay of followed keys may send in an hour"
    )
    max_feed_bytes: int = _setting(
        32 * 1024 * 1024, "Bytes that one relay of followed keys may send in an hour"
    )
    max_feed_total_bytes: int = _setting(
        256 * 1024 * 1024, "Bytes that all relays of followed keys together may send in an hour"
    )
    max_feed_faults: int = _setting(
        50,
        "Number of events with a wrong signature, author or kind after which a relay of followed"
        " keys is not read for an hour",
    )
    feed_seconds: int = _setting(
        60, "Seconds in which a relay of followed keys must finish one answer"
    )
    feed_overlap_seconds: int = _setting(
        3600,
        "Seconds before the previous look from which events are read again at a relay that has"
        " neither a changes feed nor negentropy",
    )
    feed_retry_seconds: int = _setting(
        600, "Seconds between two attempts at a failing relay of followed keys, at most"
    )

    # Broadcasting: placing the owner's events at other relays
    broadcast_all: bool = _setting(
        False, "Whether every event that the owner publishes here is broadcast; `1` or `0`"
    )
    broadcast_hubs: tuple[str, ...] = _setting(
        tuple,
        "WebSocket URLs of relays that every broadcast goes to, comma-separated",
        each_url_of("ws", "wss"),
    )
    broadcast_shares: Mapping[str, int] = _setting(
        lambda: {"mentioned": 50, "followers": 30, "hubs": 20},
        "Percentages of a broadcast's budget and number of relays that go to relays of mentioned"
        ' keys, of followers, and to hubs, as JSON. The default is `{"mentioned": 50,'
        ' "followers": 30, "hubs": 20}`.',
        check_shares,
    )
    broadcast_relays: int = _setting(50, "Number of relays that one event is broadcast to, at most")
    broadcast_event_budget: int = _setting(10**7, "Amount that broadcasting one event may cost")
    broadcast_day_budget: int = _setting(
        10**8, "Amount that all broadcasts of one day (UTC) may cost"
    )
    broadcast_attempts: int = _setting(
        8, "Number of attempts to broadcast an event to one relay, at most"
    )
    broadcast_retry_seconds: int = _setting(
        30, "Seconds before the second attempt at a relay of a broadcast; they double each time"
    )
    broadcast_check_percent: int = _setting(
        20, "Percentage of the events paid for by broadcasts that are read back", at_most(100)
    )
    broadcast_check_seconds: int = _setting(
        3600, "Seconds after which an event that a broadcast paid for is read back"
    )
    broadcast_max_lost_percent: int = _setting(
        10,
        "Percentage of the events read back that a paid relay may have lost; above it, no broadcast"
        " pays the relay",
        at_most(100),
    )
    broadcast_pardon_days: int = _setting(
        30, "Days after its last loss when a relay that lost paid events may be paid again"
    )

    # Paid subscriptions (BTP-NIPs)
    subscription_models: tuple[str, ...] = _setting(
        lambda: tuple(map(str, Model)),
        "Models of paid subscriptions that are offered, comma-separated; none if empty. All four if"
        " left out: `free,one_time,streaming,hybrid`.",
        each_of(*Model),
    )
    subscription_base_fee: int = _setting(
        1000, "Price of a subscription of model `one_time`, before its time and its complexity"
    )
    subscription_minute_fee: int = _setting(
        1, "Price of each minute of a subscription of model `one_time`"
    )
    subscription_complexity_fee: int = _setting(
        100, "Price of each value in the filters of a subscription of model `one_time`"
    )
    subscription_setup_fee: int = _setting(1000, "Price of a subscription of model `streaming`")
    subscription_event_fee: int = _setting(
        10, "Price of each event of a subscription of model `streaming`"
    )
    subscription_hybrid_fee: int = _setting(10000, "Price of a subscription of model `hybrid`")
    subscription_hybrid_event_fee: int = _setting(
        5, "Price of each event of a subscription of model `hybrid`"
    )
    subscription_default_ttl: int = _setting(
        3600,
        "Seconds that a paid subscription lasts if it does not say, from 60 to 86400",
        between(TTL_MIN, TTL_MAX),
    )
    subscription_max_ttl: int = _setting(
        86400,
        "Most seconds that a paid subscription may last, from 60 to 86400",
        between(TTL_MIN, TTL_MAX),
    )
    subscription_free_events: int = _setting(
        100, "Events that a subscription of model `free` delivers before it is closed"
    )
    subscription_free_ttl: int = _setting(
        3600,
        "Most seconds that a subscription of model `free` may last, from 60 to 86400",
        between(TTL_MIN, TTL_MAX),
    )
    subscription_max: int = _setting(10, "Open paid subscriptions of one owner")
    subscription_per_peer: int = _setting(
        1000, "Open paid subscriptions whose packets came from one peer"
    )
    subscription_max_stored: int = _setting(
        500, "Stored events that a paid subscription begins with at most, all filters together"
    )
    subscription_window: int = _setting(
        10,
        "Delivery packets of one subscription that may be on their way at once, at most 10",
        between(1, WINDOW_MAX),
    )
    subscription_packet_ms: int = _setting(
        15000, "Milliseconds until a delivery packet to a subscriber expires"
    )
    subscription_handshake_ms: int = _setting(
        5000, "Milliseconds that a subscriber has to prove that it receives at its address"
    )
    subscription_give_up_seconds: int = _setting(
        3600, "Seconds after which a subscription is closed if its subscriber stays unreachable"
    )
    subscription_attempts: int = _setting(
        5, "Attempts to deliver an event that its subscriber rejects, before it is skipped"
    )
    subscription_replays: int = _setting(
        1000, "Events that a paid subscription may receive again for nothing"
    )
    subscription_skew_seconds: int = _setting(
        300, "Seconds by which the timestamp of a BTP-NIPs message may differ from our clock"
    )
    sweep_seconds: int = _setting(
        2,
        "Seconds between two looks at what is due, on one machine: packets and paid subscriptions"
        " whose time is over",
        between(1, 60),
    )
    subscription_propagate: bool = _setting(
        False,
        "Whether paid subscriptions are passed on to followed relays, out of a budget that their"
        " owner names; `1` or `0`",
    )

    # Limits
    max_message_length: int = _setting(131072, "Largest WebSocket message in bytes")
    max_subscriptions: int = _setting(50, "Number of open subscriptions of one connection")
    max_filters: int = _setting(20, "Number of filters in one REQ or COUNT")
    max_filter_values: int = _setting(
        2000, "Number of values in all lists of all filters of one request"
    )
    max_live_values: int = _setting(
        10000, "Number of index keys of all open subscriptions of one connection"
    )
    max_live_bytes: int = _setting(
        262144, "Bytes of the filters, as JSON, of all open subscriptions of one connection"
    )
    max_parsed_bytes: int = _setting(
        16 * 1024 * 1024,
        "Bytes of subscriptions' filters, as JSON, that one process keeps parsed in its memory",
    )
    max_limit: int = _setting(
        5000, "Number of events that one filter returns at most; a larger `limit` is lowered"
    )
    default_limit: int = _setting(500, "Number of events that a filter without `limit` returns")
    max_event_tags: int = _setting(2500, "Number of tags of one event")
    max_free_targets: int = _setting(
        100,
        "Number of targets of a kind 5 that are looked up to see whether it deletes something of"
        " its author's here and so is free",
    )
    max_content_length: int = _setting(102400, "Number of characters of an event's content")
    created_at_past: int = _setting(
        0, "Seconds by which an event's `created_at` may lie in the past; 0 is any number"
    )
    created_at_future: int = _setting(
        900, "Seconds by which an event's `created_at` may lie in the future"
    )
    max_scan: int = _setting(
        50000,
        "Number of index entries that all filters of one request together may read before it is"
        " refused",
    )
    light_scan: int = _setting(
        1000,
        "Number of index entries that a request may read before it counts as large; on one machine"
        " few large requests run at a time",
    )
    req_seconds: int = _setting(
        20, "Seconds after which a REQ or COUNT that is not answered yet is closed"
    )
    changes_seconds: int = _setting(
        20, "Seconds after which one CHANGES answer ends; the client continues from its end"
    )
    search: bool = _setting(
        True, "Whether the local server keeps a full-text index and answers searches (NIP-50)"
    )
    max_search_hits: int = _setting(
        1000, "Hits of a search that are looked up before the filter's other fields decide"
    )
    max_removed_at_once: int = _setting(
        2000, "Events that one call removes for a ban or a request to vanish; the rest goes later"
    )
    max_auth_keys: int = _setting(20, "Number of keys that one connection may authenticate")
    max_syncs: int = _setting(8, "Number of open negentropy syncs of one connection")
    max_sync_events: int = _setting(1_000_000, "Number of events in one negentropy sync")
    sync_frame: int = _setting(
        60_000, "Bytes of one negentropy message, before hex encoding doubles them"
    )
    sync_seconds: int = _setting(300, "Seconds after which an idle negentropy sync is closed")
    count_exactly: int = _setting(1000, "Number of events up to which COUNT is exact")
    requests_per_second: int = _setting(
        100,
        "Number of WebSocket messages per second of one connection, and of HTTP requests per second"
        " of one address, in the long run; 0 is any number",
    )
    request_burst: int = _setting(
        1000, "Number of messages or requests that may come at once, above the rate per second"
    )
    address_messages_per_second: int = _setting(
        1000,
        "Number of WebSocket messages per second from one address, over all its connections to the"
        " local server, in the long run; 0 is any number",
    )
    address_message_burst: int = _setting(
        5000,
        "Number of WebSocket messages that may come at once from one address, above its rate per"
        " second",
    )
    max_send_buffer: int = _setting(
        8 * 1024 * 1024, "Bytes that wait for one slow client before it is disconnected"
    )
    max_send_buffers: int = _setting(
        64 * 1024 * 1024,
        "Bytes that wait for all slow clients together before the slowest are disconnected",
    )
    max_connections: int = _setting(5000, "Number of connections to the local server at a time")
    max_connections_per_address: int = _setting(
        200,
        "Number of connections to the local server from one address at a time, except from this"
        " machine; 0 is any number",
    )
    request_seconds: int = _setting(
        60,
        "Seconds in which a request to the local server must arrive, and that an idle HTTP"
        " connection stays open",
    )
    connection_seconds: int = _setting(
        7500,
        "Seconds for which the records of a connection are kept; API Gateway ends connections after"
        " two hours",
    )

    # Not a setting: whether these are the settings of a deployed agent, whose data is in DynamoDB.
    deployed: bool = False

    @classmethod
    def from_env(cls, environment: Mapping[str, str], **more: Any) -> Self:
        settings = {PREFIX + setting.name.upper(): setting for setting in declared()}
        _refuse_unknown(environment, settings)
        given = {
            setting.name: _read(variable, setting, environment[variable])
            for variable, setting in settings.items()
            if variable in environment
        }
        return cls(**given, **more)

    def __post_init__(self) -> None:
        for setting in declared():
            value = getattr(self, setting.name)
            check = setting.metadata.get("check")
            try:
                if type(value) is int:
                    check_number(value)
                if check is not None and (value or setting.default):
                    check(value)
            except InvalidValue as error:
                raise InvalidSetting(f"{PREFIX}{setting.name.upper()}: {error}") from None
        if self.public_key and self.secret_key and self.public_key != self.pubkey:
            raise InvalidSetting(f"{PREFIX}PUBLIC_KEY: expected that of {PREFIX}SECRET_KEY")
        if self.ilp_address and not address.is_valid(self.ilp_address):
            raise InvalidSetting(f"{PREFIX}ILP_ADDRESS: expected an ILP address, got another text")

    @cached_property
    def subscription_fees(self) -> FeeSchedule:
        """What paid subscriptions cost: the one source of every statement about it."""
        return FeeSchedule(
            models=frozenset(map(Model, self.subscription_models)),
            base_fee=self.subscription_base_fee,
            minute_fee=self.subscription_minute_fee,
            complexity_fee=self.subscription_complexity_fee,
            setup_fee=self.subscription_setup_fee,
            event_fee=self.subscription_event_fee,
            hybrid_fee=self.subscription_hybrid_fee,
            hybrid_event_fee=self.subscription_hybrid_event_fee,
            default_ttl=min(self.subscription_default_ttl, self.subscription_max_ttl),
            max_ttl=self.subscription_max_ttl,
            free_events=self.subscription_free_events,
            free_ttl=self.subscription_free_ttl,
            asset_code=self.asset_code,
            asset_scale=self.asset_scale,
        )

    @cached_property
    def pubkey(self) -> str:
        if self.public_key and not self.secret_key:
            return self.public_key
        return public_key_of(bytes.fromhex(self.secret_key))

    @cached_property
    def secret(self) -> bytes:
        """The owner's secret key, for who signs, seals or derives with it."""
        if not self.secret_key:
            raise InvalidSetting(f"{PREFIX}SECRET_KEY is needed here, and not given")
        return bytes.fromhex(self.secret_key)

    @cached_property
    def own_ilp_address(self) -> str:
        return self.ilp_address or f"g.agent.{self.pubkey}"

    @cached_property
    def tariff(self) -> Tariff:
        kinds = {int(kind): price for kind, price in self.price_kinds.items()}
        return Tariff(
            self.price_per_byte,
            kinds,
            self.asset_code,
            self.asset_scale,
            self.price_per_tag,
            self.free_tags,
        )

    @cached_property
    def aether_tariff(self) -> Tariff:
        kinds = {int(kind): price for kind, price in self.aether_price_kinds.items()}
        return replace(self.tariff, kinds=kinds)

    @property
    def is_free(self) -> bool:
        return self.tariff.is_free

    @cached_property
    def ilp_url(self) -> str:
        return f"{self.http_url}/ilp"

    @property
    def listens_everywhere(self) -> bool:
        """Whether the host is a wildcard, which is no address that others could use."""
        return self.host in _WILDCARDS

    @cached_property
    def authority(self) -> str:
        """The host and port by which this machine reaches the local server."""
        host = _WILDCARDS.get(self.host, self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @cached_property
    def socket_url(self) -> str:
        """The relay's WebSocket URL, public where one is set."""
        return self.relay_url.rstrip("/") or f"ws://{self.authority}"

    @cached_property
    def purses_url(self) -> str:
        """The page about purses; a purse's own page is below it."""
        return f"{self.http_url}/purse"

    @cached_property
    def http_url(self) -> str:
        """Where HTTP requests go: the relay's own URL with the other scheme, unless set."""
        if self.web_url:
            return self.web_url.rstrip("/")
        return self.socket_url.replace("ws", "http", 1)


def declared() -> "list[Field[Any]]":
    """The fields that are settings."""
    return [each for each in fields(Settings) if "about" in each.metadata]


def _refuse_unknown(environment: Mapping[str, str], known: Mapping[str, "Field[Any]"]) -> None:
    for name in environment:
        if not name.startswith(PREFIX) or name in known:
            continue
        # The name of a secret, whose content Lambda functions read.
        secret = known.get(name.removesuffix("_ARN").removesuffix("_PARAMETER"))
        if name.removeprefix(PREFIX) in _NOT_SETTINGS or (secret and not secret.repr):
            continue
        if name.endswith("_QUEUE_URL"):  # where a Lambda function finds a queue of the surface
            continue
        raise InvalidSetting(f"there is no setting {name}{nearest(name, known)}")


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: which of the names may have been meant."""
    # Loaded for this message only.
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), 1)
    return f"; the nearest is {found[0]}" if found else ""


def _read(variable: str, setting: "Field[Any]", text: str) -> Any:
    read = setting.metadata.get("read") or READERS[setting.type]
    try:
        return read(text)
    except InvalidValue as error:
        raise InvalidSetting(f"{variable}: {error}") from None


def documentation() -> list[tuple[str, str, str]]:
    """(variable, default, what it is) of every setting, for the table in docs/."""
    rows = []
    for setting in declared():
        default = "" if setting.default is MISSING else setting.default
        shown = str(int(default)) if isinstance(default, bool) else str(default)
        rows.append((PREFIX + setting.name.upper(), shown, setting.metadata["about"]))
    return rows
