"""Settings of the connector."""

from dataclasses import dataclass

from farthing.settings.declaring import setting
from farthing.settings.values import at_most, check_present, url_of


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Interledger:
    """The connector: its address and asset, limits of peers, fees, and settlement."""

    ilp_address: str = setting("", "ILP address of this agent; if empty, `g.agent.<public key>`")
    asset_code: str = setting(
        "USD", "Code of the asset in which prices and balances are kept", check_present
    )
    asset_scale: int = setting(
        9, "Decimal places of the asset: with 9, one unit is a billionth", at_most(255)
    )
    peer_token: str = setting(
        "",
        "Bearer token of the peer `local`. The local server makes one on its first run and keeps it"
        " in the data folder.",
        secret=True,
    )
    max_balance: int = setting(
        10**9,
        "Amount that a peer may owe us, if its own record has no limit. The default, a dollar, is"
        " credit for a stranger; with 0, peers pay in advance.",
    )
    local_max_balance: int = setting(
        10**15, "Amount that the peer `local`, for our own clients on one machine, may owe us"
    )
    max_packet: int = setting(
        10**13, "Largest amount of one packet from a peer, if its own record has no limit"
    )
    packets_per_minute: int = setting(10000, "Number of packets that a peer may send per minute")
    peer_cache_seconds: int = setting(
        5, "Seconds for which a peer's record is cached; then a removed peer is refused"
    )
    min_delivery_ms: int = setting(
        100, "Milliseconds before its expiry by which a packet for us must have arrived"
    )
    forward_fee: int = setting(0, "Fixed fee for each packet that we forward")
    forward_fee_ppm: int = setting(
        1000,
        "Fee for each packet that we forward, in millionths of its amount: 1000 is 0.1 percent",
        at_most(1_000_000),
    )
    forward_min_fee: int = setting(
        1,
        "Least fee for each packet that we forward. Not charged if its amount is 0, or if"
        " FARTHING_FORWARD_FEE and FARTHING_FORWARD_FEE_PPM are both 0.",
    )
    free_packets_per_minute: int = setting(
        1000, "Number of packets of amount 0 that we forward for a peer per minute"
    )
    forward_margin_ms: int = setting(
        1000, "Milliseconds by which a forwarded packet expires earlier at the next hop"
    )
    forward_max_ms: int = setting(
        30000, "Longest time in milliseconds that we wait for the answer of the next hop"
    )
    settlement_url: str = setting(
        "", "URL of the settlement engine (RFC 0038) that pays peers for us",
        url_of("http", "https"),
    )  # fmt: skip
    settlement_token: str = setting(
        "",
        "Bearer token with which the settlement engine reports payments of peers",
        secret=True,
    )
    settlement_threshold: int = setting(
        10**9, "Amount that we may owe a peer before we ask the settlement engine to pay"
    )
