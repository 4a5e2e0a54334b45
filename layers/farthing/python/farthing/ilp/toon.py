"""Nostr events as TOON text, the form in which they travel in a packet's data.

The `toons` package writes and reads every string without loss. It does lose floats, tuples and
dates, which no event has: `dumps` refuses them, so that a payer learns before paying. Whether what
`loads` gives is a valid event is for the relay to say.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import toons

from farthing.nostr.events import Event

FIELDS: Final = ("id", "pubkey", "created_at", "kind", "tags", "content", "sig")

# A table (`name[3]{a,b}:`) has no place in an event, and the parser's time for its header grows
# with the square of the size: 30 kB take 0.1 s. `]{` is harmless behind `name:` or `- [2]:`, where
# the parser reads values; encoders put quotes around it there.
_VALUES: Final = re.compile(r" *(?:- \[\d+[|\t]?\]|[a-z_]+):")
# Apart from the few of its fields, an event's lines are its tags, the shortest of them `  - []`.
# Thousands of shorter ones cost milliseconds, in which nobody else is served on one machine.
_FEW_LINES: Final = 16
_SHORTEST_LINE: Final = 6


class InvalidToon(ValueError):
    """Bytes that hold no TOON object."""


class NotEncodable(ValueError):
    """An event that would not come back from TOON as it went in."""


def dumps(event: Mapping[str, Any]) -> bytes:
    """The event's TOON, fields in the order of FIELDS."""
    if event.keys() != set(FIELDS):
        raise NotEncodable("not exactly the seven fields of an event")
    ordered = {name: event[name] for name in FIELDS}
    if not _has_exact_types(ordered):
        raise NotEncodable("a field of a type that TOON does not keep")
    encoded = _encode(ordered)
    # The reader is asked too: a release of `toons` with a flaw must not cost anyone money.
    if not _reads_back(encoded, ordered):
        raise NotEncodable("TOON does not give this event back")
    return encoded


def dumps_event(event: Event) -> bytes:
    return dumps({**event.as_dict(), "tags": [list(tag) for tag in event.tags]})


def encoded_length(event: Event) -> int:
    """How many bytes the event's TOON has. Nothing is read back: whoever only names a price does
    not send it."""
    return len(_encode({**event.as_dict(), "tags": [list(tag) for tag in event.tags]}))


def loads(octets: bytes) -> dict[str, Any]:
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidToon("not UTF-8") from None
    if text.count("\n") > _FEW_LINES + len(text) // _SHORTEST_LINE:
        raise InvalidToon("more lines than an event has")
    if _has_table(text):
        raise InvalidToon("a table")
    value = _parse(text)
    if not isinstance(value, dict) or not value:
        raise InvalidToon("not an object")
    return value


def _has_table(text: str) -> bool:
    """Whether a line has `]{` where the parser reads no values."""
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
        # The parser is native code, whose panics are BaseExceptions; long integers raise a
        # plain ValueError.
        raise InvalidToon("not TOON") from error


def _encode(event: dict[str, Any]) -> bytes:
    try:
        return toons.dumps(event).encode("utf-8")
    except ValueError as error:
        raise NotEncodable("text with a lone surrogate, or an integer too long") from error


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
