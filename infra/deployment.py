"""What an operator decides about a deployment: names, prices, sizes, and which stacks there are.

Everything comes from the CDK context: cdk.json, or `-c name=value`. A name that is one of the
relay's own settings is passed on to its functions as that setting.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from farthing.settings import PREFIX, Settings, declared
from infra.permissions import TABLES

# Settings that the stacks know, or that are of one machine: nobody gives them here.
_NOT_GIVEN = frozenset(
    {"secret_key", "public_key", "derived_keys", "settlement_token", "purse_token", "peer_token",
     "table_prefix", "relay_url", "web_url", "host", "port", "data", "workers", "trusted_proxies",
     "metrics_token", "log_level", "log_format", "address_messages_per_second",
     "address_message_burst"}
)  # fmt: skip

_DEFAULT_CONCURRENCY = {"ilp": 50, "upkeep": 1, "sweeper": 1, "feeds": 1, "outbox": 1}
# Periods for which CloudWatch keeps a log, up to two years.
_LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)
_LEAST_WORKERS = 2
# API Gateway ends a request after 29 seconds. Whoever waits for the next hop must still be there to
# settle what it answers and, by default, to call an asynchronous sender back.
_FORWARD_MS, _LONGEST_FORWARD_MS = 18_000, 25_000
# API Gateway closes a connection on a frame of more bytes, and clients send a message as one frame.
_LARGEST_FRAME = 32 * 1024
# A negentropy message travels as twice as many hexadecimal digits, between verb and id.
_SYNC_FRAME, _SYNC_ENVELOPE = 16_000, 512
_HOURS = 24
# Ours are words; what the CDK and its CLI keep in the context has other characters in it.
_NAME = re.compile(r"[a-z_]+")
# Stacks, functions and queues are named by it.
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,24}|")


def _option(default: Any, about: str) -> Any:
    if callable(default):
        return field(default_factory=default, metadata={"about": about})
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Deployment:
    prefix: str = _option("farthing-", "What the names of tables, functions and queues begin with")
    removal: str = _option(
        "retain", "Whether tables, key and logs outlive the stacks: `retain` or `destroy`"
    )
    settings: Mapping[str, str] = field(default_factory=dict)

    # Secrets
    secret_key_arn: str = _option("", "Secret with the owner's key; one is made if empty")
    settlement_token_arn: str = _option("", "Secret with the settlement engine's token")
    purse_token_arn: str = _option("", "Secret with the payment processor's token")
    key_version: int = _option(1, "Raise it after a secret was changed: functions read it anew")

    # Sizes
    memory: int = _option(512, "Megabytes of a function")
    memory_of: Mapping[str, int] = _option(
        lambda: {"negentropy": 1024, "recipients": 1769},
        "Megabytes of single functions; 1769 are a whole processor",
    )
    concurrency: Mapping[str, int] = _option(
        lambda: dict(_DEFAULT_CONCURRENCY),
        "Reserved concurrency of functions; `{}` for an account whose limit is 10",
    )
    log_days: int = _option(30, "Days that logs are kept")
    throttle_rate: int = _option(500, "Messages, and requests, per second that are let in")
    throttle_burst: int = _option(1000, "And how many at once")

    # One URL for everything
    edge: bool = _option(True, "CloudFront: one URL for wss, NIP-11 and HTTP")
    page: bool = _option(True, "The page for people, in a bucket behind CloudFront")
    domain: str = _option("", "Name of that URL; point it at the output `EdgeDomain`")
    certificate_arn: str = _option("", "Its certificate, in us-east-1")
    web_acl_arn: str = _option("", "Web ACL (WAF, global) in front of it")

    # Scheduled jobs
    analytics: bool = _option(True, "Glue jobs: routes, credit limits, the report")
    glue_workers: int = _option(2, "Workers of a job (G.1X)")
    export_hours: int = _option(24, "Hours between two exports and rebuilds of the routes")

    # Watching
    operations: bool = _option(True, "Alarms, dashboard and budget")
    alarm_email: str = _option("", "Who is told; it has to be confirmed by a click")
    route_metrics: bool = _option(False, "API Gateway's metrics of each route, $0.30 a month each")
    monthly_budget: int = _option(
        50, "US dollars a month of the whole account, after which the relay stops; 0 is no bound"
    )
    hourly_messages: int = _option(
        1_000_000,
        "WebSocket messages, and HTTP requests, of an hour after which the relay stops, before"
        " the bill knows of them; 0 is no bound",
    )
    least_daily_revenue: int = _option(
        0, "What a day's revenue must not fall below, in the asset's units; 0 is no alarm"
    )

    @classmethod
    def from_context(cls, context: Callable[[str], Any], names: Iterable[str] = ()) -> "Deployment":
        """`context` answers with a value or None: a number or object may come as its text. `names`
        are all that it has: a price that is misspelt must not be passed over."""
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
        """What is wrong stops here, not in the cloud."""
        if self.removal not in ("retain", "destroy"):
            raise ValueError("removal is `retain` or `destroy`")
        if bool(self.domain) != bool(self.certificate_arn):
            raise ValueError("a domain needs its certificate, in us-east-1, and the other way")
        if self.certificate_arn and ":us-east-1:" not in self.certificate_arn:
            raise ValueError("CloudFront takes the domain's certificate from us-east-1 only")
        if (self.domain or self.web_acl_arn) and not self.edge:
            raise ValueError("a domain and a web ACL are the edge's: there is none")
        if self.log_days not in _LOG_DAYS:
            raise ValueError(f"log_days is one of {', '.join(map(str, _LOG_DAYS))}")
        if self.glue_workers < _LEAST_WORKERS:
            raise ValueError(f"glue_workers is {_LEAST_WORKERS} at least")
        if self.export_hours < 1 or _HOURS % self.export_hours:
            raise ValueError(f"export_hours divides {_HOURS}")
        for name in {*self.memory_of, *self.concurrency} - set(TABLES):
            raise ValueError(f"memory_of and concurrency: there is no function {name!r}")
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError("prefix is of letters, digits and hyphens, and begins with a letter")
        _check(Settings.from_env(self.environment))

    @property
    def environment(self) -> dict[str, str]:
        """The settings as functions find them."""
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
    """That settings fit through API Gateway."""
    if settings.forward_max_ms > _LONGEST_FORWARD_MS:
        raise ValueError(f"forward_max_ms is {_LONGEST_FORWARD_MS} at most behind API Gateway")
    if settings.max_message_length > _LARGEST_FRAME:
        raise ValueError(f"max_message_length is {_LARGEST_FRAME} at most behind API Gateway")
    largest = (settings.max_message_length - _SYNC_ENVELOPE) // 2
    if not 0 < settings.sync_frame <= largest:
        raise ValueError(f"sync_frame is {largest} at most, for messages of max_message_length")


def documentation() -> list[tuple[str, str, str]]:
    """(option, default, what it is) of every option, for the table in docs/."""
    rows = []
    for option in fields(Deployment):
        if option.name == "settings":
            continue
        made = option.default_factory() if option.default_factory is not MISSING else option.default
        default = made if isinstance(made, str) else json.dumps(made)
        rows.append((option.name, default, option.metadata["about"]))
    return rows


def _value(kind: object, value: Any) -> Any:
    """Command-line context is text only."""
    return json.loads(value) if isinstance(value, str) and kind is not str else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return value if isinstance(value, str) else json.dumps(value)
