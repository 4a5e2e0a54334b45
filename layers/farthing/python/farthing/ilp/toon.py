"""Nostr events as TOON text, the form in which they travel in a packet's data.

The `toons` package writes and reads every string without loss. It does lose floats, tuples and
dates, which no event has: `dumps` refuses them, before anybody pays. `loads` does not check that
the result is a valid event.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import toons

from farthing.nostr.events import Event

FIELDS: Final = ("id", "pubkey", "created_at", "kind", "tags", "content", "sig")

# An event has no tables (`name[3]{a,b}:`), and the parser's time for the header of a table grows
# with the square of its size: 30 kB take 0.1 s. `]{` is harmless after `name:` or `- [2]:`, where
# the parser reads values; encoders put quotes around it there.
_VALUES: Final = re.compile(r" *(?:- \[\d+[|\t]?\]|[a-z_]+):")
# Apart from a few lines of fields, the lines of an event are its tags, and `  - []` is the shortest
# tag. Thousands of shorter lines would take milliseconds to parse, and on one machine all other
# clients would wait.
_FEW_LINES: Final = 16
_SHORTEST_LINE: Final = 6


class InvalidToon(ValueError):
    """Bytes that are not a TOON object."""


class NotEncodable(ValueError):
    """An event that TOON would change."""


def dumps(event: Mapping[str, Any]) -> bytes:
    """The event's TOON, fields in the order of FIELDS."""
    if event.keys() != set(FIELDS):
        raise NotEncodable("expected exactly the seven fields of an event")
    ordered = {name: event[name] for name in FIELDS}
    if not _has_exact_types(ordered):
        raise NotEncodable("expected text, whole numbers and lists, which TOON keeps unchanged")
    encoded = _encode(ordered)
    # The text is parsed again as a check: a fault of `toons` must not cost anyone money.
    if not _reads_back(encoded, ordered):
        raise NotEncodable("expected TOON that parses to the same event, got a different event")
    return encoded


def dumps_event(event: Event) -> bytes:
    return dumps({**event.as_dict(), "tags": [list(tag) for tag in event.tags]})


def encoded_length(event: Event) -> int:
    """The size of the event's TOON in bytes. The text is not parsed again, because it is only
    priced and not sent."""
    return len(_encode({**event.as_dict(), "tags": [list(tag) for tag in event.tags]}))


def loads(octets: bytes) -> dict[str, Any]:
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidToon("expected TOON in UTF-8") from None
    if text.count("\n") > _FEW_LINES + len(text) // _SHORTEST_LINE:
        raise InvalidToon("expected the lines of an event, got more than an event can have")
    if _has_table(text):
        raise InvalidToon("expected the fields of an event, got a table")
    value = _parse(text)
    if not isinstance(value, dict) or not value:
        raise InvalidToon("expected an event as an object")
    return value


def _has_table(text: str) -> bool:
    """Whether a line has `]{` outside of values."""
    at = text.find("]{")
    while at >= 0:
        if not _VALUES.match(text, text.rfind("\n", 0, at) + 1):
            return True
        end = text.find("\n", at)
        at = text.find("]{", end) if end >= 0 else -1
    return False


def _parse(text: str) -> object:
    try:
        return toons.loads(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # The parser is native code: its panics are BaseExceptions. Long integers raise a plain
        # ValueError.
        raise InvalidToon("expected an event as TOON") from error


def _encode(event: dict[str, Any]) -> bytes:
    try:
        return toons.dumps(event).encode("utf-8")
    except ValueError as error:
        raise NotEncodable("expected valid Unicode and integers of 64 bits") from error


def _reads_back(encoded: bytes, event: dict[str, Any]) -> bool:
    try:
        return loads(encoded) == event
    except InvalidToon:
        return False


def _has_exact_types(event: dict[str, Any]) -> bool:
    return (
        all(type(event[name]) is str for name in ("id", "pubkey", "content", "sig"))
        and all(type(event[name]) is int for name in ("created_at", "kind"))
        and type(event["tags"]) is list
        and all(_is_tag(tag) for tag in event["tags"])
    )


def _is_tag(tag: object) -> bool:
    return type(tag) is list and all(type(element) is str for element in tag)
