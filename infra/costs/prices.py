"""AWS's list prices: us-east-1, on demand, first tier, as known on the date below.

Prices are only here. For another region or a later date, `farthing cost --prices FILE` reads JSON
such as `{"write_units": {"dollars": "0.71", "per": 1000000}}`, with the prices that differ.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path

AS_OF = "2026-11-18"
REGION = "us-east-1"
FREE_DASHBOARD_METRICS = 50  # of each dashboard that is free
PICO = 10**12  # picodollars in a dollar; amounts of money are in picodollars

_MILLION = 10**6
_GIGABYTE = 10**9
_GB_SECOND = 1024 * 1000  # in megabytes times milliseconds
_HOUR = 3600


class Unit(StrEnum):
    """The units that are counted and billed."""

    WRITE_UNITS = "write_units"
    READ_UNITS = "read_units"
    STORED_BYTES = "stored_bytes"  # for a month
    RECOVERABLE_BYTES = "recoverable_bytes"  # for a month
    EXPORTED_BYTES = "exported_bytes"
    FUNCTION_CALLS = "function_calls"
    FUNCTION_TIME = "function_time"  # megabytes times milliseconds
    HTTP_REQUESTS = "http_requests"
    SOCKET_MESSAGES = "socket_messages"  # of 32 KB
    CONNECTION_MINUTES = "connection_minutes"
    EDGE_REQUESTS = "edge_requests"
    EDGE_CALLS = "edge_calls"
    EDGE_BYTES = "edge_bytes"
    LOGGED_BYTES = "logged_bytes"
    KEPT_LOG_BYTES = "kept_log_bytes"  # for a month
    METRICS = "metrics"  # for a month, like all below
    ALARMS = "alarms"  # by the metric
    DASHBOARDS = "dashboards"
    LARGE_DASHBOARDS = "large_dashboards"  # with more metrics than a free one may have
    SECRETS = "secrets"
    KEYS = "keys"
    SCHEDULER_CALLS = "scheduler_calls"
    JOB_SECONDS = "job_seconds"  # of a DPU
    SPARE_JOB_SECONDS = "spare_job_seconds"  # the same, Flex


class Service(StrEnum):
    """The services of the bill."""

    DYNAMODB = "DynamoDB"
    LAMBDA = "Lambda"
    API_GATEWAY = "API Gateway"
    CLOUDFRONT = "CloudFront"
    CLOUDWATCH = "CloudWatch"
    OTHER = "other"


class InvalidPrices(ValueError):
    """The file of prices is not valid; the message says where."""


@dataclass(frozen=True)
class Price:
    """Picodollars for `per` units; `free` units are free every month, in any account."""

    service: Service
    picodollars: int
    per: int = 1
    free: int = 0

    def of(self, amount: int) -> int:
        """Picodollars, rounded up."""
        return -(-amount * self.picodollars // self.per)

    def beyond_free(self, amount: int) -> int:
        return self.of(max(0, amount - self.free))


def _price(service: Service, dollars: str, per: int = 1, free: int = 0) -> Price:
    return Price(service, _picodollars(dollars), per, free)


def _picodollars(dollars: str) -> int:
    exact = Decimal(dollars) * PICO
    if exact < 0 or exact != int(exact):
        raise InvalidOperation
    return int(exact)


_S = Service
# By the pricing pages of Amazon DynamoDB (on-demand capacity), AWS Lambda (Arm), Amazon API Gateway
# (HTTP and WebSocket APIs), Amazon CloudFront (pay as you go, United States), Amazon CloudWatch,
# AWS Secrets Manager, AWS KMS, Amazon EventBridge (Scheduler) and AWS Glue.
PRICES: Mapping[Unit, Price] = {
    Unit.WRITE_UNITS: _price(_S.DYNAMODB, "0.625", _MILLION),
    Unit.READ_UNITS: _price(_S.DYNAMODB, "0.125", _MILLION),
    Unit.STORED_BYTES: _price(_S.DYNAMODB, "0.25", _GIGABYTE, free=25 * _GIGABYTE),
    Unit.RECOVERABLE_BYTES: _price(_S.DYNAMODB, "0.20", _GIGABYTE),
    Unit.EXPORTED_BYTES: _price(_S.DYNAMODB, "0.10", _GIGABYTE),
    Unit.FUNCTION_CALLS: _price(_S.LAMBDA, "0.20", _MILLION, free=_MILLION),
    Unit.FUNCTION_TIME: _price(_S.LAMBDA, "0.0000133334", _GB_SECOND, free=400_000 * _GB_SECOND),
    Unit.HTTP_REQUESTS: _price(_S.API_GATEWAY, "1.00", _MILLION),
    Unit.SOCKET_MESSAGES: _price(_S.API_GATEWAY, "1.00", _MILLION),
    Unit.CONNECTION_MINUTES: _price(_S.API_GATEWAY, "0.25", _MILLION),
    Unit.EDGE_REQUESTS: _price(_S.CLOUDFRONT, "1.00", _MILLION, free=10 * _MILLION),
    Unit.EDGE_CALLS: _price(_S.CLOUDFRONT, "0.10", _MILLION, free=2 * _MILLION),
    Unit.EDGE_BYTES: _price(_S.CLOUDFRONT, "0.085", _GIGABYTE, free=1000 * _GIGABYTE),
    Unit.LOGGED_BYTES: _price(_S.CLOUDWATCH, "0.50", _GIGABYTE, free=5 * _GIGABYTE),
    Unit.KEPT_LOG_BYTES: _price(_S.CLOUDWATCH, "0.03", _GIGABYTE, free=5 * _GIGABYTE),
    Unit.METRICS: _price(_S.CLOUDWATCH, "0.30", free=10),
    Unit.ALARMS: _price(_S.CLOUDWATCH, "0.10", free=10),
    Unit.DASHBOARDS: _price(_S.CLOUDWATCH, "3.00", free=3),
    Unit.LARGE_DASHBOARDS: _price(_S.CLOUDWATCH, "3.00"),
    Unit.SECRETS: _price(_S.OTHER, "0.40"),
    Unit.KEYS: _price(_S.OTHER, "1.00"),
    Unit.SCHEDULER_CALLS: _price(_S.OTHER, "1.00", _MILLION, free=14 * _MILLION),
    # Glue 6.0 costs 30 % less than earlier versions.
    Unit.JOB_SECONDS: _price(_S.OTHER, "0.308", _HOUR),
    Unit.SPARE_JOB_SECONDS: _price(_S.OTHER, "0.203", _HOUR),
}


def with_changes(path: Path | None) -> dict[Unit, Price]:
    """The table, with prices replaced by those of a file. A price of the file has no free amount
    unless it states one."""
    prices = dict(PRICES)
    for name, given in (json.loads(path.read_text()) if path else {}).items():
        try:
            unit = Unit(name)
            prices[unit] = _price(
                prices[unit].service, given["dollars"], int(given.get("per", 1)),
                int(given.get("free", 0)),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, InvalidOperation):
            raise InvalidPrices(
                f'{path}: expected {{"dollars": "0.625", "per": 1000000}} for a known unit,'
                f" got {name}: {json.dumps(given)}"
            ) from None
    return prices
