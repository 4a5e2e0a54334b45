"""What an operator decides about a deployment: names, prices, sizes, and which stacks there are.

Everything comes from the CDK context: cdk.json, or `-c name=value`. A name that is one of the
relay's own settings is passed on to its functions as that setting.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from farthing.settings import PREFIX, Settings

# Settings that the stacks know, or that are of one machine: nobody gives them here.
_NOT_GIVEN = frozenset(
    {"secret_key", "settlement_token", "peer_token", "table_prefix", "relay_url", "web_url",
     "host", "port", "data", "workers"}
)  # fmt: skip

_DEFAULT_CONCURRENCY = {"ilp": 50, "upkeep": 1, "sweeper": 1}


@dataclass(frozen=True)
class Deployment:
    prefix: str = "farthing-"
    # Whether tables and the key outlive the stacks: `retain`, or `destroy` for a rehearsal.
    removal: str = "retain"
    settings: Mapping[str, str] = field(default_factory=dict)
    # The owner's key and the settlement engine's token, where they are secrets already.
    secret_key_arn: str = ""
    settlement_token_arn: str = ""
    # Raised after the key was changed, to have everything that follows from it follow.
    key_version: int = 1
    # Sizes, by function where they differ.
    memory: int = 512
    memory_of: Mapping[str, int] = field(default_factory=lambda: {"negentropy": 1024})
    concurrency: Mapping[str, int] = field(default_factory=lambda: dict(_DEFAULT_CONCURRENCY))
    log_days: int = 30
    # Messages and requests per second that the doors let in, and how many at once.
    throttle_rate: int = 500
    throttle_burst: int = 1000
    # One URL for everything, and a name for it.
    edge: bool = True
    domain: str = ""
    certificate_arn: str = ""
    # Scheduled jobs, and how large.
    analytics: bool = True
    glue_workers: int = 2
    export_hours: int = 24
    # Watching, and a bound on what it may cost: US dollars a month, 0 is none.
    operations: bool = True
    alarm_email: str = ""
    monthly_budget: int = 50
    # What a day's revenue must not fall below, in the asset's units, before someone is told.
    least_daily_revenue: int = 0

    @classmethod
    def from_context(cls, context: Callable[[str], Any]) -> "Deployment":
        """`context` answers with a value or None: a number or object may come as its text."""
        given = {
            option.name: _value(option.type, value)
            for option in fields(cls)
            if option.name != "settings" and (value := context(option.name)) is not None
        }
        names = [each.name for each in fields(Settings) if each.name not in _NOT_GIVEN]
        settings = {name: _text(value) for name in names if (value := context(name)) is not None}
        return cls(settings=settings, **given)

    def __post_init__(self) -> None:
        if self.removal not in ("retain", "destroy"):
            raise ValueError("removal is `retain` or `destroy`")
        if bool(self.domain) != bool(self.certificate_arn):
            raise ValueError("a domain needs its certificate, in us-east-1, and the other way")
        Settings.from_env(self.environment)  # a wrong setting stops here, not in the cloud

    @property
    def environment(self) -> dict[str, str]:
        """The settings as functions find them."""
        given = {PREFIX + name.upper(): value for name, value in self.settings.items()}
        return {**given, f"{PREFIX}TABLE_PREFIX": self.prefix}

    @property
    def keeps(self) -> bool:
        return self.removal == "retain"


def _value(kind: object, value: Any) -> Any:
    """Command-line context is text only."""
    return json.loads(value) if isinstance(value, str) and kind is not str else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return value if isinstance(value, str) else json.dumps(value)
