"""Every setting, each an environment variable `FARTHING_<NAME>`, in one typed object.

The README's table and the relay information document are made from what stands here.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property
from typing import Any, Self

from farthing.ilp import address
from farthing.ilp.oer import U64_MAX
from farthing.ilp.tariff import Tariff
from farthing.nostr.events import is_hex64, public_key_of
from farthing.nostr.kinds import MAX_KIND

PREFIX = "FARTHING_"

NOISE_POLICIES = ("optional", "required", "off")
# API Gateway ends a request after 30 seconds.
LONGEST_STREAM_SECONDS = 25


class InvalidSetting(ValueError):
    """A setting that cannot be used; the message names it."""


def _setting(default: Any, about: str) -> Any:
    if callable(default):
        return field(default_factory=default, metadata={"about": about})
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Settings:
    # Who we are
    secret_key: str = field(
        default="",
        repr=False,
        metadata={"about": "The owner's Nostr key, 64 hex digits. Made and kept in the data folder"
                  " on the first local run."},
    )  # fmt: skip
    relay_url: str = _setting(
        "", "Public WebSocket URL, where it differs from where we listen; AUTH takes no other"
    )
    web_url: str = _setting(
        "", "Public HTTP URL, where it is not the WebSocket URL by the other scheme"
    )
    name: str = _setting("Farthing", "Name in the relay information document")
    description: str = _setting(
        "A Nostr relay where a farthing buys one stored event.", "Description, likewise"
    )
    contact: str = _setting("", "Contact URI, likewise")
    icon: str = _setting("", "Icon URL, likewise")

    # Where it runs
    host: str = _setting("127.0.0.1", "Address that the local server binds to")
    port: int = _setting(7777, "Port of the local server, HTTP and WebSocket")
    data: str = _setting(".farthing", "Folder with all state of the local server")
    workers: int = _setting(8, "Threads of the local server for everything but writes")
    table_prefix: str = _setting("farthing-", "Prefix of the DynamoDB tables' names")

    # Who may write
    price_per_byte: int = _setting(10, "Price of a byte of a stored event; 0 makes writing free")
    free_pubkeys: frozenset[str] = _setting(
        frozenset, "Authors who write for free, comma-separated hex keys"
    )
    blocked_pubkeys: frozenset[str] = _setting(
        frozenset, "Authors who may not write at all, comma-separated hex keys"
    )
    price_kinds: Mapping[str, int] = _setting(
        dict, 'Flat prices of kinds, as JSON: `{"1": 5000}`; they replace the price by size'
    )

    # Interledger
    ilp_address: str = _setting("", "Our ILP address; `g.agent.<public key>` if empty")
    asset_code: str = _setting("USD", "Code of the asset that prices and balances are in")
    asset_scale: int = _setting(9, "Decimal places of that asset: 9 makes one unit a billionth")
    peer_token: str = field(
        default="",
        repr=False,
        metadata={"about": "Token of the peer `local`. Made and kept in the data folder on the"
                  " first local run."},
    )  # fmt: skip
    max_balance: int = _setting(10**15, "What a peer may owe us, where its own record does not say")
    follow_max_balance: int = _setting(
        10**9, "What a peer from the follow list may owe us until trust has been computed"
    )
    max_packet: int = _setting(10**13, "Largest amount of one packet, likewise")
    packets_per_minute: int = _setting(10000, "Packets of a peer per minute")
    peer_cache_seconds: int = _setting(
        5, "Seconds that a peer's record is remembered: a removed peer is refused after them"
    )
    min_delivery_ms: int = _setting(100, "Milliseconds that a packet for us must have left")
    forward_fee: int = _setting(0, "What we keep of each packet that we forward")
    forward_fee_ppm: int = _setting(
        1000, "And that many millionths of its amount: 1000 is a tenth of a percent"
    )
    forward_margin_ms: int = _setting(1000, "Milliseconds that we take from a forwarded packet")
    forward_max_ms: int = _setting(30000, "Milliseconds that we wait for the next hop at most")
    peer_with_follows: bool = _setting(
        False, "Whether followed agents become active peers at once; `1` or `0`"
    )
    upkeep_seconds: int = _setting(
        600, "Seconds between two rounds of what the agent does by itself, on one machine"
    )
    max_gathered_relays: int = _setting(200, "Followed agents whose relays are read in a round")
    max_gathered_events: int = _setting(5000, "Events that are read at one of them")
    max_gathered_bytes: int = _setting(
        8 * 1024 * 1024, "Bytes that upkeep reads from the relay of one followed agent in a round"
    )
    max_gathered_event_bytes: int = _setting(
        65536, "Bytes of an event that upkeep keeps of somebody whom the owner does not follow"
    )
    gather_seconds: int = _setting(10, "Seconds that one of them may take")
    allow_private_hosts: bool = _setting(
        False,
        "Whether peers, callbacks, settlement engines and relays may be at private, loopback or"
        " link-local addresses; `1` on a test network",
    )
    route_cache_seconds: int = _setting(
        10, "Seconds that routes are remembered: a new routing table counts after them"
    )
    max_announced_routes: int = _setting(1000, "Routes in our own kind 10033")
    max_shrink_percent: int = _setting(
        50, "A new routing table that is smaller by more than this is refused"
    )
    settlement_url: str = _setting("", "Settlement engine (RFC 0038) that pays peers for us")
    settlement_token: str = field(
        default="",
        repr=False,
        metadata={"about": "Token with which the settlement engine reports what peers have paid"},
    )
    settlement_threshold: int = _setting(10**9, "What we may owe a peer before we settle")
    quote_seconds: int = _setting(300, "Seconds that a quoted price is meant to hold")
    profile: str = _setting("", "Content of the owner's kind 0, as JSON; none if empty")

    # Aether
    aether: bool = _setting(
        True, "Whether Aether events are served beside Nostr events; `1` or `0`"
    )
    aether_noise: str = _setting(
        "optional",
        "Whether Aether sockets are encrypted by Noise: `optional`, `required` or `off`",
    )
    aether_future_seconds: int = _setting(
        60, "Seconds that created_at of an Aether event may lie in the future"
    )
    aether_price_kinds: Mapping[str, int] = _setting(
        dict,
        "Flat prices of kinds of Aether events, as JSON; other kinds cost their size in bytes times"
        " the price of a byte",
    )
    aether_stream_seconds: int = _setting(
        0,
        "Seconds that GET /v1/stream in the cloud waits for new events before it answers, at most"
        " 25; on one machine the answer stays open",
    )
    aether_subscription_seconds: int = _setting(
        3600, "Seconds after which an HTTP subscription that nobody reads is forgotten"
    )

    # Limits
    max_message_length: int = _setting(131072, "Bytes of a WebSocket message")
    max_subscriptions: int = _setting(50, "Open subscriptions of a connection")
    max_filters: int = _setting(20, "Filters of one REQ or COUNT")
    max_filter_values: int = _setting(
        2000, "Values in the filters of one request, all their lists together"
    )
    max_live_values: int = _setting(
        10000, "Values that the open subscriptions of a connection are found by, all together"
    )
    max_limit: int = _setting(5000, "Most events that one filter returns; larger limits are cut")
    default_limit: int = _setting(500, "Events that a filter without limit returns")
    max_event_tags: int = _setting(2500, "Tags of an event")
    max_content_length: int = _setting(102400, "Characters of an event's content")
    created_at_past: int = _setting(
        0, "Seconds that created_at may lie in the past; 0 is any number"
    )
    created_at_future: int = _setting(900, "Seconds that created_at may lie in the future")
    max_scan: int = _setting(50000, "Index entries that one filter may read before it is refused")
    changes_seconds: int = _setting(
        20, "Seconds that one CHANGES answer may take before it is cut, to be continued"
    )
    max_auth_keys: int = _setting(20, "Keys that one connection may authenticate as")
    max_syncs: int = _setting(8, "Open negentropy syncs of a connection")
    max_sync_events: int = _setting(1_000_000, "Events in one negentropy sync")
    sync_frame: int = _setting(60_000, "Bytes of a negentropy message, before hex doubles them")
    sync_seconds: int = _setting(300, "Seconds after which an idle sync is forgotten")
    count_exactly: int = _setting(1000, "Events up to which COUNT is exact")
    requests_per_second: int = _setting(
        100,
        "Messages of a connection per second, on the long run, and requests of an address to"
        " the local server; 0 is any number",
    )
    request_burst: int = _setting(1000, "Messages that may come at once on top of that")
    max_send_buffer: int = _setting(
        8 * 1024 * 1024, "Bytes that wait for a slow client before it is disconnected"
    )
    max_send_buffers: int = _setting(
        64 * 1024 * 1024, "And for all slow clients together, before the slowest are disconnected"
    )
    max_connections: int = _setting(5000, "Connections to the local server at a time")
    max_connections_per_address: int = _setting(
        200, "And from one address, other than this machine's own; 0 is any number"
    )
    request_seconds: int = _setting(
        60, "Seconds that a request to the local server may take to arrive, or a next one"
    )
    connection_seconds: int = _setting(
        7500, "Life of a connection's records; API Gateway ends connections after two hours"
    )

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        given = {
            setting.name: _parse(setting, environment[PREFIX + setting.name.upper()])
            for setting in fields(cls)
            if PREFIX + setting.name.upper() in environment
        }
        return cls(**given)

    def __post_init__(self) -> None:
        if self.secret_key:
            _check_secret_key(self.secret_key)
        for setting in fields(self):
            value = getattr(self, setting.name)
            if type(value) is int and not 0 <= value <= U64_MAX:
                raise InvalidSetting(f"{PREFIX}{setting.name.upper()} is negative, or too large")
        if self.port > 65535:
            raise InvalidSetting(f"{PREFIX}PORT is above 65535")
        if self.ilp_address and not address.is_valid(self.ilp_address):
            raise InvalidSetting(f"{PREFIX}ILP_ADDRESS is not an ILP address")
        _check_prices("PRICE_KINDS", self.price_kinds)
        _check_prices("AETHER_PRICE_KINDS", self.aether_price_kinds)
        if self.aether_noise not in NOISE_POLICIES:
            raise InvalidSetting(f"{PREFIX}AETHER_NOISE is none of {', '.join(NOISE_POLICIES)}")
        if self.aether_stream_seconds > LONGEST_STREAM_SECONDS:
            raise InvalidSetting(
                f"{PREFIX}AETHER_STREAM_SECONDS is above {LONGEST_STREAM_SECONDS}"
            )

    @cached_property
    def pubkey(self) -> str:
        return public_key_of(bytes.fromhex(self.secret_key))

    @cached_property
    def own_ilp_address(self) -> str:
        return self.ilp_address or f"g.agent.{self.pubkey}"

    @cached_property
    def tariff(self) -> Tariff:
        kinds = {int(kind): price for kind, price in self.price_kinds.items()}
        return Tariff(self.price_per_byte, kinds, self.asset_code, self.asset_scale)

    @cached_property
    def aether_tariff(self) -> Tariff:
        kinds = {int(kind): price for kind, price in self.aether_price_kinds.items()}
        return Tariff(self.price_per_byte, kinds, self.asset_code, self.asset_scale)

    @property
    def is_free(self) -> bool:
        return self.tariff.is_free

    @cached_property
    def ilp_url(self) -> str:
        return f"{self.http_url}/ilp"

    @cached_property
    def http_url(self) -> str:
        """Where HTTP requests go: the relay's own URL by the other scheme, unless set apart."""
        if self.web_url:
            return self.web_url.rstrip("/")
        if not self.relay_url:
            return f"http://{self.host}:{self.port}"
        return self.relay_url.replace("ws", "http", 1).rstrip("/")

    @cached_property
    def ws_url(self) -> str:
        """Where sockets are opened."""
        return self.relay_url.rstrip("/") or f"ws://{self.host}:{self.port}"


def _check_prices(name: str, prices: Mapping[str, int]) -> None:
    for kind, price in prices.items():
        known = type(kind) is str and kind.isdecimal() and int(kind) <= MAX_KIND
        # What is more than a packet can carry could not be paid, nor written as JSON.
        if not known or type(price) is not int or not 0 <= price <= U64_MAX:
            raise InvalidSetting(f"{PREFIX}{name} maps kinds to whole numbers")


def _check_secret_key(secret_key: str) -> None:
    name = f"{PREFIX}SECRET_KEY"
    if not is_hex64(secret_key):
        raise InvalidSetting(f"{name} is not 64 lowercase hexadecimal digits")
    try:
        public_key_of(bytes.fromhex(secret_key))
    except ValueError:  # nought, or not below the order of the curve
        raise InvalidSetting(f"{name} is not a key of secp256k1") from None


def _parse(setting: "Field[Any]", text: str) -> Any:
    name = PREFIX + setting.name.upper()
    try:
        if setting.type in (int, "int"):
            return int(text)
        if setting.type in (bool, "bool"):
            return _switch(text)
        if "frozenset" in str(setting.type):
            return _pubkeys(text)
        if "Mapping" in str(setting.type):
            return _mapping(text)
    except ValueError as error:
        raise InvalidSetting(f"{name}: {error}") from None
    return text


def _pubkeys(text: str) -> frozenset[str]:
    keys = frozenset(part.strip() for part in text.split(",") if part.strip())
    wrong = [key for key in keys if not is_hex64(key)]
    if wrong:
        raise ValueError(f"{wrong[0][:70]!r} is not a public key of 64 lowercase hex digits")
    return keys


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("neither 0 nor 1")
    return text == "1"


def _mapping(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if type(value) is not dict:
        raise ValueError("not a JSON object")
    return value


def documentation() -> list[tuple[str, str, str]]:
    """(variable, default, what it is) of every setting, for the README's table."""
    rows = []
    for setting in fields(Settings):
        default = "" if setting.default is MISSING else setting.default
        rows.append((PREFIX + setting.name.upper(), str(default), setting.metadata["about"]))
    return rows
