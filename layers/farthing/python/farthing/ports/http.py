"""The parts of HTTP that verbs need: errors with their status, and the bearer token of a request.

One place turns the errors into responses: `handlers.web.web_handler`.
"""

import hmac
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class HttpError(Exception):
    """The request is answered with an HTTP error. `more` has further fields of the problem
    document."""

    scheme = "Bearer"  # the authorization scheme that a 401 answer names

    def __init__(
        self, status: int, reason: str, more: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.more = more


class BadRequest(HttpError):
    def __init__(self, reason: str) -> None:
        super().__init__(400, reason)


class Unauthorized(HttpError):
    def __init__(self, reason: str) -> None:
        super().__init__(401, reason)


class NotSigned(Unauthorized):
    """The request has no signature of a Nostr key, or a wrong one (NIP-98)."""

    scheme = "Nostr"


class Forbidden(HttpError):
    def __init__(self, reason: str) -> None:
        super().__init__(403, reason)


class PaymentRequired(HttpError):
    """`offer` has the amount to pay and the address for the payment."""

    def __init__(self, reason: str, offer: Mapping[str, Any]) -> None:
        super().__init__(402, reason, offer)


class NotFound(HttpError):
    def __init__(self, reason: str) -> None:
        super().__init__(404, reason)


class Conflict(HttpError):
    def __init__(self, reason: str) -> None:
        super().__init__(409, reason)


class TooLarge(HttpError):
    def __init__(self, reason: str) -> None:
        super().__init__(413, reason)


def bearer_token(authorization: str) -> str:
    """The token in an Authorization header, or an empty text."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def shows_token(authorization: str, token: str) -> bool:
    """Whether a header has this token. Always false for an empty token."""
    shown = bearer_token(authorization).encode(errors="replace")
    return bool(token) and hmac.compare_digest(shown, token.encode())
