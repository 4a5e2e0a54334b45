"""The refusals of BTP-NIPs messages: narrow classes, each with its error name and reject code."""

from typing import Final

import orjson

from farthing.ilp.packet import Code
from farthing.ilp.reject import Rejected


class MessageRefused(Rejected):
    """`details` are further fields of the JSON that the reject carries."""

    error: str

    def __init__(self, text: str, **details: str | int) -> None:
        message = bracketed(self.error, text)
        fields = {"error": self.error, "message": message, **details}
        super().__init__(message, orjson.dumps(fields))
        self.text = text


def bracketed(error: str, text: str) -> str:
    """The form of every error text, in rejects and in NOTICE messages."""
    return f"[{error}] {text}"


class InvalidHeader(MessageRefused):
    code = Code.F06_UNEXPECTED_PAYMENT
    error = "header_invalid"


class InvalidBody(MessageRefused):
    code = Code.F00_BAD_REQUEST
    error = "body_invalid"


class FilterRefused(MessageRefused):
    code = Code.F00_BAD_REQUEST
    error = "filter_invalid"


class StaleTimestamp(MessageRefused):
    code = Code.F00_BAD_REQUEST
    error = "timestamp_stale"


class InvalidToken(MessageRefused):
    code = Code.F00_BAD_REQUEST
    error = "token_invalid"


class InvalidAmount(MessageRefused):
    """The packet has an amount although the message is free, or an amount that is not accepted."""

    code = Code.F03_INVALID_AMOUNT
    error = "amount_invalid"


class PaymentInsufficient(MessageRefused):
    code = Code.F04_INSUFFICIENT_DESTINATION_AMOUNT
    error = "payment_insufficient"


class UnknownCondition(MessageRefused):
    code = Code.F05_WRONG_CONDITION
    error = "condition_unknown"


class UnexpectedMessage(MessageRefused):
    """A message from a relay to a subscriber, but no subscription here expects it."""

    code = Code.F06_UNEXPECTED_PAYMENT
    error = "message_unexpected"


class LimitExceeded(MessageRefused):
    code = Code.F99_APPLICATION_ERROR
    error = "limit_exceeded"


class RateExceeded(LimitExceeded):
    code = Code.T05_RATE_LIMITED


class ModelNotOffered(MessageRefused):
    code = Code.F99_APPLICATION_ERROR
    error = "model_unavailable"


class SubscriptionNotFound(MessageRefused):
    code = Code.F99_APPLICATION_ERROR
    error = "subscription_not_found"


class SubscriptionExpired(MessageRefused):
    code = Code.F99_APPLICATION_ERROR
    error = "expired"


class Replayed(MessageRefused):
    """The same message has come from another peer."""

    code = Code.F99_APPLICATION_ERROR
    error = "message_replayed"


class Outdated(MessageRefused):
    """The subscription has accepted a later message."""

    code = Code.F99_APPLICATION_ERROR
    error = "message_outdated"


class LoopDetected(MessageRefused):
    code = Code.F99_APPLICATION_ERROR
    error = "loop_detected"


class AddressRefused(MessageRefused):
    """The address may not be delivered to, or its owner has refused the proof."""

    code = Code.F99_APPLICATION_ERROR
    error = "address_unproven"


class AddressSilent(AddressRefused):
    """No answer to the proof came in time."""

    code = Code.T01_PEER_UNREACHABLE


class NoTimeForProof(AddressRefused):
    code = Code.R02_INSUFFICIENT_TIMEOUT


class RelayError(MessageRefused):
    code = Code.T00_INTERNAL_ERROR
    error = "relay_error"


_OTHERS: Final = {
    Code.F00_BAD_REQUEST: InvalidBody.error,
    Code.F05_WRONG_CONDITION: UnknownCondition.error,
    Code.F06_UNEXPECTED_PAYMENT: UnexpectedMessage.error,
    Code.F99_APPLICATION_ERROR: "refused",
    Code.T00_INTERNAL_ERROR: RelayError.error,
    Code.T04_INSUFFICIENT_LIQUIDITY: "liquidity_insufficient",
    Code.T05_RATE_LIMITED: LimitExceeded.error,
    Code.R00_TRANSFER_TIMED_OUT: "timed_out",
    Code.R02_INSUFFICIENT_TIMEOUT: "timeout_insufficient",
}


def in_our_form(code: Code, text: str) -> tuple[str, bytes]:
    """Message and data, in this protocol's form, of a reject that another part of the connector has
    made."""
    message = bracketed(_OTHERS.get(code, "rejected"), text)
    return message, orjson.dumps({"error": _OTHERS.get(code, "rejected"), "message": message})
