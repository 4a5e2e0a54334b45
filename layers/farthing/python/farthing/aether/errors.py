"""Aether's error codes, and one exception for each code that the pure parts can find."""

from enum import StrEnum
from typing import ClassVar


class Code(StrEnum):
    """The code in `error` of an ERROR message and of an HTTP answer. The list is complete."""

    INVALID_MESSAGE = "invalid_message"
    INVALID_EVENT = "invalid_event"
    VALIDATION_FAILED = "validation_failed"
    SUBSCRIPTION_NOT_FOUND = "subscription_not_found"
    PAYMENT_REQUIRED = "payment_required"
    CAPABILITY_REFUSED = "capability_refused"
    TOO_LARGE = "too_large"
    RATE_LIMITED = "rate_limited"
    INTERNAL = "internal"


class AetherError(Exception):
    """A refusal of Aether. The answer names the subscription or the event."""

    code: ClassVar[Code] = Code.INTERNAL

    def __init__(
        self, message: str, *, event_id: str | None = None, sub_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.event_id = event_id
        self.sub_id = sub_id


class InvalidMessage(AetherError):
    """A frame or a message that cannot be read."""

    code = Code.INVALID_MESSAGE


class NotAether(InvalidMessage):
    """A frame that is not an Aether message at all. On a socket that is not marked as Aether, the
    answer is a NOTICE."""


class InvalidEvent(AetherError):
    """An event of the wrong shape."""

    code = Code.INVALID_EVENT


class ValidationFailed(AetherError):
    """An event of the right shape that breaks a rule, or whose id or signature is wrong."""

    code = Code.VALIDATION_FAILED


class CapabilityRefused(AetherError):
    """A capability chain that does not allow the write."""

    code = Code.CAPABILITY_REFUSED


class TooLarge(AetherError):
    """A message or an event above a limit of this relay."""

    code = Code.TOO_LARGE
