"""The meaning of a failed DynamoDB call: whether it may have been carried out, and whether to
retry."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ProxyConnectionError,
    SSLError,
)
from botocore.parsers import ResponseParserError
from pynamodb.exceptions import CancellationReason, VerboseClientError

from farthing.store.table import Contended, OutcomeUnknown, StoreError, Throttled

CallError = (BotoCoreError, ClientError)
CONDITION_FAILED = "ConditionalCheckFailedException"
CANCELLED = "TransactionCanceledException"

_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingError",
        "ThrottlingException",
    }
)
_CONTENDED = frozenset(
    {
        "ReplicatedWriteConflictException",
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
_UNSENT = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError, SSLError)
_LOST = (HTTPClientError, ResponseParserError)
_SERVER_ERROR = 500


class Fault(Enum):
    THROTTLED = auto()
    CONTENDED = auto()
    UNSENT = auto()
    LOST = auto()  # the call may have been carried out
    FINAL = auto()  # a retry would not help


class CallRefused(StoreError):
    """DynamoDB has refused the call. `after_loss`: an earlier attempt may have succeeded."""

    def __init__(self, error: Exception, *, after_loss: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.after_loss = after_loss

    @property
    def code(self) -> str:
        return code_of(self.error)

    @property
    def current(self) -> dict[str, Any] | None:
        """The item that broke the condition of a single write. PynamoDB leaves it in the cause."""
        response: dict[str, Any] = getattr(self.error.__cause__, "response", {})
        return response.get("Item") or None

    @property
    def reasons(self) -> list[CancellationReason | None]:
        return reasons_of(self.error)


def code_of(error: Exception) -> str:
    response: Any = getattr(error, "response", {})
    return str(response.get("Error", {}).get("Code", ""))


def reasons_of(error: Exception) -> list[CancellationReason | None]:
    return error.cancellation_reasons if isinstance(error, VerboseClientError) else []


def fault_of(error: Exception) -> Fault:
    if isinstance(error, _UNSENT):
        return Fault.UNSENT
    if isinstance(error, _LOST):
        return Fault.LOST
    code = code_of(error)
    if code == CANCELLED:
        return _cancellation_fault(error)
    if code in _THROTTLED:
        return Fault.THROTTLED
    if code in _CONTENDED:
        return Fault.CONTENDED
    return Fault.LOST if _is_server_error(error, code) else Fault.FINAL


def _cancellation_fault(error: Exception) -> Fault:
    """Only a temporary reason is worth another attempt: a failed condition fails again."""
    codes = {reason.code for reason in reasons_of(error) if reason is not None}
    if not codes or codes - _THROTTLED - _CONTENDED:
        return Fault.FINAL
    return Fault.CONTENDED if codes & _CONTENDED else Fault.THROTTLED


def _is_server_error(error: Exception, code: str) -> bool:
    response: Any = getattr(error.__cause__, "response", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= _SERVER_ERROR or code in ("InternalServerError", "ServiceUnavailable")


def given_up(fault: Fault, *, maybe_written: bool) -> StoreError:
    if maybe_written:
        return OutcomeUnknown("the store did not answer")
    if fault is Fault.CONTENDED:
        return Contended("other processes are writing the same items")
    return Throttled("the store is over its capacity and refused all retries")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential pauses with full jitter: each pause is random, between 0 and its bound."""

    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    attempts: int = 7
    base: float = 0.025
    cap: float = 1.0

    def pause(self, failures: int) -> None:
        self.sleep(self.jitter() * min(self.cap, self.base * 2**failures))
