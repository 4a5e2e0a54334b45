"""The options of a deployment: names, prices, sizes, and which stacks there are.

All options come from the CDK context: cdk.json, or `-c name=value`. An option with the name of a
relay setting is passed on to the functions as that setting.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from farthing.settings import PREFIX, Settings, declared
from infra.permissions import TABLES

# Settings that the stacks compute, or that are for one machine only. They are no options.
_NOT_GIVEN = frozenset(
    {"secret_key", "public_key", "derived_keys", "settlement_token", "purse_token", "peer_token",
     "table_prefix", "relay_url", "web_url", "host", "port", "data", "workers", "trusted_proxies",
     "metrics_token", "log_level", "log_format", "refusals_logged_per_minute",
     "address_messages_per_second", "address_message_burst"}
)  # fmt: skip

_DEFAULT_CONCURRENCY = {"ilp": 50, "upkeep": 1, "sweeper": 1, "feeds": 1, "outbox": 1}
# Periods for which CloudWatch keeps a log, up to two years.
_LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)
_LEAST_WORKERS = 2
# API Gateway ends a request after 29 seconds. A function that waits for the next hop needs time to
# settle the answer and, by default, to call an asynchronous sender back.
_FORWARD_MS, _LONGEST_FORWARD_MS = 18_000, 25_000
# API Gateway closes a connection after a larger frame, and clients send a message as one frame.
_LARGEST_FRAME = 32 * 1024
# A negentropy message is sent as twice as many hexadecimal digits, with a verb and an id.
_SYNC_FRAME, _SYNC_ENVELOPE = 16_000, 512
_HOURS = 24
# Our options are words. Names that the CDK and its CLI put into the context have other characters.
_NAME = re.compile(r"[a-z_]+")
# The prefix of the names of stacks, functions and queues.
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,24}|")


def _option(default: Any, about: str) -> Any:
    if callable(default):
        return field(default_factory=default, metadata={"about": about})
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Deployment:
    prefix: str = _option("farthing-", "Prefix of the names of tables, functions and queues")
    removal: str = _option(
        "retain",
        "Whether tables, key and logs outlive deleted stacks: `retain` or `destroy`",
    )
    settings: Mapping[str, str] = field(default_factory=dict)

    # Secrets
    secret_key_arn: str = _option(
        "", "ARN of the secret with the owner's key; a key is generated if empty"
    )
    settlement_token_arn: str = _option("", "ARN of the secret with the settlement engine's token")
    purse_token_arn: str = _option("", "ARN of the secret with the payment processor's token")
    key_version: int = _option(
        1,
        "Version of the secrets; raise it after a change, so that functions read them again",
    )

    # Sizes
    memory: int = _option(512, "Megabytes of memory of a function")
    memory_of: Mapping[str, int] = _option(
        lambda: {"negentropy": 1024, "recipients": 1769},
        "Megabytes of memory of single functions; 1769 give a whole processor",
    )
    concurrency: Mapping[str, int] = _option(
        lambda: dict(_DEFAULT_CONCURRENCY),
        "Reserved concurrency of functions; use `{}` in an account whose limit is 10",
    )
    log_days: int = _option(30, "Days that logs are kept")
    throttle_rate: int = _option(
        500, "WebSocket messages per second, and HTTP requests per second, that the APIs accept"
    )
    throttle_burst: int = _option(
        1000, "WebSocket messages, and HTTP requests, that the APIs accept at once"
    )

    # CloudFront: one URL for everything
    edge: bool = _option(True, "Whether CloudFront serves wss, NIP-11 and HTTP at one URL")
    page: bool = _option(
        True, "Whether the page for people is served, from a bucket behind CloudFront"
    )
    domain: str = _option(
        "",
        "Your domain name for CloudFront; its DNS record must point to the output `EdgeDomain`",
    )
    certificate_arn: str = _option("", "ARN of the certificate for `domain`, in us-east-1")
    web_acl_arn: str = _option("", "ARN of a web ACL (WAF, global) for CloudFront")

    # Scheduled jobs
    analytics: bool = _option(
        True, "Whether Glue jobs compute routes, credit limits and the report"
    )
    glue_workers: int = _option(2, "Workers (G.1X) of a Glue job")
    export_hours: int = _option(
        24, "Hours between two exports of the tables, and between two rebuilds of the routes"
    )

    # Watching
    operations: bool = _option(True, "Whether there are alarms, dashboards and a budget")
    alarm_email: str = _option("", "Email address for alarms; AWS sends a link to confirm it")
    route_metrics: bool = _option(
        False, "Whether API Gateway publishes metrics of each route, at $0.30 a month each"
    )
    monthly_budget: int = _option(
        50,
        "Monthly US dollars of the whole account after which the relay is stopped; 0 is no limit",
    )
    hourly_messages: int = _option(
        1_000_000,
        "WebSocket messages, or HTTP requests, within an hour after which the relay is stopped,"
        " before the budget learns of them; 0 is no limit",
    )
    least_daily_revenue: int = _option(
        0, "Daily revenue, in units of the asset, below which an alarm is sent; 0 is no alarm"
    )

    @classmethod
    def from_context(cls, context: Callable[[str], Any], names: Iterable[str] = ()) -> "Deployment":
        """`context` returns the value of a name, or None. A number or object may come as text.
        `names` are all names in the context: a misspelt option must not be ignored."""
        options = {option.name for option in fields(cls)} - {"settings"}
        settings = {each.name for each in declared()} - _NOT_GIVEN
        for name in names:
            if _NAME.fullmatch(name) and name not in options | settings | _NOT_GIVEN:
                raise ValueError(f"there is no option {name!r}: see docs/aws.md")
        given = {
            option.name: _value(option.type, value)
            for option in fields(cls)
            if option.name in options and (value := context(option.name)) is not None
        }
        passed_on = {
            name: _text(value) for name in sorted(settings) if (value := context(name)) is not None
        }
        return cls(settings=passed_on, **given)

    def __post_init__(self) -> None:
        """Check the options before anything is deployed."""
        if self.removal not in ("retain", "destroy"):
            raise ValueError(f"removal: expected `retain` or `destroy`, got {self.removal!r}")
        if bool(self.domain) != bool(self.certificate_arn):
            raise ValueError("expected both domain and certificate_arn, or neither")
        if self.certificate_arn and ":us-east-1:" not in self.certificate_arn:
            raise ValueError(
                "certificate_arn: expected a certificate in us-east-1, as CloudFront needs"
            )
        if (self.domain or self.web_acl_arn) and not self.edge:
            raise ValueError("domain and web_acl_arn need CloudFront, but edge is false")
        if self.log_days not in _LOG_DAYS:
            raise ValueError(f"log_days: expected one of {', '.join(map(str, _LOG_DAYS))}")
        if self.glue_workers < _LEAST_WORKERS:
            raise ValueError(f"glue_workers: expected at least {_LEAST_WORKERS}")
        if self.export_hours < 1 or _HOURS % self.export_hours:
            raise ValueError(f"export_hours: expected a divisor of {_HOURS}")
        for name in {*self.memory_of, *self.concurrency} - set(TABLES):
            raise ValueError(f"memory_of and concurrency: there is no function {name!r}")
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(
                "prefix: expected at most 25 letters, digits and hyphens, a letter first"
            )
        _check(Settings.from_env(self.environment))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the functions."""
        given = {PREFIX + name.upper(): value for name, value in self.settings.items()}
        return {
            f"{PREFIX}FORWARD_MAX_MS": str(_FORWARD_MS),
            f"{PREFIX}MAX_MESSAGE_LENGTH": str(_LARGEST_FRAME),
            f"{PREFIX}MAX_CONTENT_LENGTH": str(_LARGEST_FRAME),
            f"{PREFIX}SYNC_FRAME": str(_SYNC_FRAME),
            **given,
            f"{PREFIX}TABLE_PREFIX": self.prefix,
        }

    @property
    def keeps(self) -> bool:
        return self.removal == "retain"


def _check(settings: Settings) -> None:
    """Check that settings are within API Gateway's limits."""
    if settings.forward_max_ms > _LONGEST_FORWARD_MS:
        raise ValueError(
            f"forward_max_ms: expected at most {_LONGEST_FORWARD_MS} behind API Gateway"
        )
    if settings.max_message_length > _LARGEST_FRAME:
        raise ValueError(
            f"max_message_length: expected at most {_LARGEST_FRAME} behind API Gateway"
        )
    largest = (settings.max_message_length - _SYNC_ENVELOPE) // 2
    if not 0 < settings.sync_frame <= largest:
        raise ValueError(
            f"sync_frame: expected above 0 and at most {largest}, for max_message_length"
        )


def documentation() -> list[tuple[str, str, str]]:
    """(name, default, description) of every option, for the table in docs/."""
    rows = []
    for option in fields(Deployment):
        if option.name == "settings":
            continue
        made = option.default_factory() if option.default_factory is not MISSING else option.default
        default = made if isinstance(made, str) else json.dumps(made)
        rows.append((option.name, default, option.metadata["about"]))
    return rows


def _value(kind: object, value: Any) -> Any:
    """The value of an option. Values from the command line are text."""
    return json.loads(value) if isinstance(value, str) and kind is not str else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return value if isinstance(value, str) else json.dumps(value)
