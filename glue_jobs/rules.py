"""The rules of a rebuild, each a named setting, and the report of a rebuild."""

from dataclasses import dataclass, field
from enum import StrEnum

from farthing.ilp.fees import TYPICAL_AMOUNT
from glue_jobs.events_source import Format

_DAY = 24 * 3600
_MAX_TOTAL_FEE = 2**63 - 1


class Refusal(StrEnum):
    """Why a claim or an announced route does not count."""

    NO_ADDRESS = "claim without a valid address"
    SHORT_PREFIX = "claim of a prefix that is too short"
    DEEP_ADDRESS = "claim of an address with too many segments"
    UNROUTABLE = "claim of an address that is never forwarded to"
    ABSURD_FEE = "fee above the maximum or no number"
    FOREIGN_ADDRESS = "claim of an address that a nearer key holds"
    SHADOWING = "claim of a prefix of a nearer key's address"
    SHADOWED = "claim of an address below a nearer key's"
    NOT_FOLLOWED = "route announced by a key that is not followed"
    MALFORMED_ROUTE = "announced route that is malformed"
    DUPLICATE_ROUTE = "route announced twice by one peer"
    STALE_ROUTE = "route announced too long ago"
    FUTURE_ROUTE = "route announced in the future"
    TOO_MANY_ROUTES = "route above the number that one peer may announce"
    UNCLAIMED_ROUTE = "route announced to an address that nobody claims"
    FAR_ROUTE = "announced route beyond the hop limit"


@dataclass(frozen=True, kw_only=True)
class Options:
    now: int  # epoch seconds
    generation: str = ""
    source_format: Format = Format.JSONL
    hop_limit: int = 6
    max_fee: int = 1_000_000  # of one hop, and of one announced route
    # The amount of a packet for which fees are compared that are a share of the amount.
    typical_amount: int = TYPICAL_AMOUNT
    max_announcement_age: int = 7 * _DAY
    max_clock_skew: int = 15 * 60
    max_routes_per_peer: int = 1000
    min_segments: int = 3  # `g` and `g.agent` belong to nobody
    max_segments: int = 32
    unroutable: tuple[str, ...] = ("peer", "self")  # first segments that mean one link or one host

    def __post_init__(self) -> None:
        if self.hop_limit < 1 or self.min_segments < 2 or self.max_routes_per_peer < 0:
            raise ValueError("hop limit, segments and routes for each peer must be positive")
        if not 0 <= self.max_fee * self.hop_limit <= _MAX_TOTAL_FEE:
            raise ValueError(f"max_fee x hop_limit: expected 0 to {_MAX_TOTAL_FEE}")
        if not 0 <= self.typical_amount <= 10**6:
            raise ValueError("typical_amount: expected the amount of a small packet, 0 to 1000000")


@dataclass
class Report:
    """The numbers of a rebuild: events read, claims refused, routes found."""

    events: int = 0  # of the three kinds, before only the newest of each author are kept
    malformed: int = 0
    agents: int = 0  # keys whose claim to an address is valid
    edges: int = 0
    rounds: int = 0
    routes: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The report as readable lines."""
        return [
            f"{self.events} events read, {self.malformed} malformed",
            f"{self.agents} agents, {self.edges} follows among them, {self.rounds} rounds",
            f"{self.routes} routes",
            *(f"refused: {count} of: {reason}" for reason, count in sorted(self.refused.items())),
        ]
