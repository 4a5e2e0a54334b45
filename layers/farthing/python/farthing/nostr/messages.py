"""What clients send and relays answer (NIP-01, NIP-42, NIP-45), as values and as frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import orjson

MAX_SUBSCRIPTION_ID = 64


class Prefix(StrEnum):
    """The machine-readable first word of an OK or CLOSED message. There are no others."""

    DUPLICATE = "duplicate"  # NIP-01
    POW = "pow"  # NIP-01, NIP-13
    BLOCKED = "blocked"  # NIP-01
    RATE_LIMITED = "rate-limited"  # NIP-01
    INVALID = "invalid"  # NIP-01
    RESTRICTED = "restricted"  # NIP-01, NIP-42
    MUTE = "mute"  # NIP-01
    ERROR = "error"  # NIP-01
    AUTH_REQUIRED = "auth-required"  # NIP-42


class Refused(Exception):
    """A request that the relay does not serve, in the protocol's own words."""

    def __init__(self, prefix: Prefix, reason: str) -> None:
        super().__init__(f"{prefix}: {reason}")
        self.prefix = prefix


class InvalidMessage(ValueError):
    """The frame carries no message that could be answered by id; a NOTICE is all there is."""


class Verb(StrEnum):
    EVENT = "EVENT"
    REQ = "REQ"
    CLOSE = "CLOSE"
    COUNT = "COUNT"  # NIP-45
    AUTH = "AUTH"  # NIP-42
    CHANGES = "CHANGES"  # NIP-CF
    NEG_OPEN = "NEG-OPEN"  # NIP-77
    NEG_MSG = "NEG-MSG"  # NIP-77
    NEG_CLOSE = "NEG-CLOSE"  # NIP-77


_VERBS = {verb.value: verb for verb in Verb}


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """A verb and what followed it, not yet understood: each verb reads its own parts."""

    verb: Verb
    parts: Sequence[object]

    def subscription_id(self) -> str:
        """The id that answers carry.

        Raises InvalidMessage where there is none to answer to, and Refused where it breaks a rule.
        """
        if not self.parts or type(self.parts[0]) is not str:
            raise InvalidMessage(f"{self.verb} without a subscription id")
        return self.parts[0]


def check_subscription_id(subscription_id: str) -> None:
    if not 1 <= len(subscription_id) <= MAX_SUBSCRIPTION_ID:
        raise Refused(Prefix.INVALID, f"subscription id is not 1-{MAX_SUBSCRIPTION_ID} characters")


def parse_message(frame: str | bytes) -> ClientMessage:
    try:
        value = orjson.loads(frame)
    except orjson.JSONDecodeError as error:
        raise InvalidMessage("not JSON") from error
    if type(value) is not list or not value or type(value[0]) is not str:
        raise InvalidMessage("not an array that starts with a verb")
    verb = _VERBS.get(value[0])
    if verb is None:
        raise InvalidMessage(f"unknown verb {value[0][:32]!r}")
    return ClientMessage(verb, value[1:])


def _frame(*parts: object) -> str:
    return orjson.dumps(parts).decode()


def event_frame(subscription_id: str, event_json: str) -> str:
    """EVENT around an event that is JSON already: it is not parsed again on its way out."""
    return f'["EVENT",{orjson.dumps(subscription_id).decode()},{event_json}]'


def ok(event_id: str, accepted: bool, message: str = "") -> str:
    return _frame("OK", event_id, accepted, message)


def eose(subscription_id: str) -> str:
    return _frame("EOSE", subscription_id)


def closed(subscription_id: str, message: str) -> str:
    return _frame("CLOSED", subscription_id, message)


def notice(message: str) -> str:
    return _frame("NOTICE", message)


def auth_challenge(challenge: str) -> str:
    return _frame("AUTH", challenge)


def count(subscription_id: str, number: int, *, approximate: bool) -> str:
    body: dict[str, object] = {"count": number}
    if approximate:
        body["approximate"] = True
    return _frame("COUNT", subscription_id, body)
