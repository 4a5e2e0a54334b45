"""The messages of clients and relays (NIP-01, NIP-42, NIP-45), as values and as frames."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeGuard

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
    """The relay refuses the request. The message begins with one of the protocol's prefixes."""

    def __init__(self, prefix: Prefix, reason: str) -> None:
        super().__init__(f"{prefix}: {reason}")
        self.prefix = prefix


class InvalidMessage(ValueError):
    """The frame has no message with an id, so the only possible answer is a NOTICE."""


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
    """A verb and its parts before parsing. Each verb parses its own parts."""

    verb: Verb
    parts: Sequence[object]
    # The frame that the message came in. It has no information beyond the other fields.
    frame: str | bytes = field(default="", compare=False)

    @property
    def filters_text(self) -> str:
        """The text after the subscription id, unchanged. Empty if it is hard to find."""
        return filters_text(self.frame)

    def subscription_id(self) -> str:
        """The id that answers carry.

        Raises InvalidMessage if the message has no id, and Refused if the id breaks a rule.
        """
        if not self.parts or type(self.parts[0]) is not str:
            raise InvalidMessage(f"{self.verb} without a subscription id")
        return self.parts[0]

    @property
    def claimed_id(self) -> str:
        """The event id that the answer to an EVENT or AUTH must name, even if the rest of the
        message is invalid."""
        body = self.parts[0] if self.parts else None
        if not isinstance(body, dict):
            return ""
        claimed = body.get("event_id", body.get("id"))  # an Aether event has an event_id
        return claimed[:64] if isinstance(claimed, str) else ""


def check_subscription_id(subscription_id: str) -> None:
    if not 1 <= len(subscription_id) <= MAX_SUBSCRIPTION_ID:
        raise Refused(Prefix.INVALID, f"subscription id is not 1-{MAX_SUBSCRIPTION_ID} characters")


def parse_message(frame: str | bytes) -> ClientMessage:
    try:
        value = orjson.loads(frame)
    except orjson.JSONDecodeError as error:
        raise InvalidMessage("expected JSON") from error
    if type(value) is not list or not value or type(value[0]) is not str:
        raise InvalidMessage("expected an array that starts with a verb")
    verb = _VERBS.get(value[0])
    if verb is None:
        raise InvalidMessage(f"unknown verb {value[0][:32]!r}")
    return ClientMessage(verb, value[1:], frame)


# The parser reads ids that contain an escape.
_BEFORE_FILTERS = re.compile(r'\s*\[\s*"REQ"\s*,\s*"[^"\\]*"\s*,').match


def filters_text(frame: str | bytes) -> str:
    """The unchanged filters of a REQ. The frame may be any other message."""
    if not isinstance(frame, str) or not frame.endswith("]"):
        return ""
    found = _BEFORE_FILTERS(frame)
    return frame[found.end() : -1] if found else ""


def refusable_message(frame: str | bytes) -> ClientMessage | None:
    """The verb and the id of a frame that `parse_message` refuses although its grammar is JSON's.
    Such a frame has half of a surrogate pair, which no text can hold, a number such as 1e999, which
    no float can hold, or a number of thousands of digits, or is nested too deep. The client waits
    for an answer with its id."""
    try:
        value = decode_loosely(frame)
    except RecursionError:
        return _message_at_the_front(frame)
    except ValueError:
        return None
    if type(value) is not list or not value or not is_text(value[0]):
        return None
    verb = _VERBS.get(value[0])
    if verb is None:
        return None
    named = value[1] if len(value) > 1 else None
    if isinstance(named, dict):
        named = {key: named[key] for key in ("id", "event_id") if is_text(named.get(key))}
    return ClientMessage(verb, [named] if isinstance(named, dict) or is_text(named) else [])


def decode_loosely(frame: str | bytes) -> object:
    """A value of JSON's grammar, although no text or number can hold some part of it. Its whole
    numbers are not read. Raises ValueError, and RecursionError for a value that is nested too
    deep."""
    return json.loads(frame, parse_constant=_refuse_constant, parse_int=_unread)


# The verb, and the subscription id if there is one. The parser reads ids that contain an escape.
_FRONT = re.compile(r'\s*\[\s*"([A-Z-]+)"\s*(?:,\s*("(?:[^"\\]|\\.)*"))?').match


def _message_at_the_front(frame: str | bytes) -> ClientMessage | None:
    """The verb and the id of a frame that is nested too deep for the parser."""
    found = _FRONT(frame) if isinstance(frame, str) else None
    verb = _VERBS.get(found[1]) if found else None
    if found is None or verb is None:
        return None
    try:
        named = json.loads(found[2]) if found[2] else None
    except ValueError:
        return None
    return ClientMessage(verb, [named] if is_text(named) else [])


def _unread(_digits: str) -> int:
    """Stands for a number: only texts are read, and Python refuses thousands of digits."""
    return 0


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def is_text(value: object) -> TypeGuard[str]:
    """Whether the value is a string that can be sent back."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _frame(*parts: object) -> str:
    return orjson.dumps(parts).decode()


def event_frame(subscription_id: str, event_json: str) -> str:
    """EVENT around an event that is JSON already: it is not parsed again on its way out."""
    return f'["EVENT",{orjson.dumps(subscription_id).decode()},{event_json}]'


def event_frame_writer(subscription_id: str) -> Callable[[bytes], bytes]:
    """Writes EVENTs of one subscription, each around an event's octets."""
    start = f'["EVENT",{orjson.dumps(subscription_id).decode()},'.encode()
    return lambda octets: b"%b%b]" % (start, octets)


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
