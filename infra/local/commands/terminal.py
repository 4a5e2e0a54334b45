"""Input and output of commands: text from strangers made safe to print, and keys and ids in every
common form."""

import argparse
import json
import sys
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from farthing.ilp.address import is_peer, is_valid
from farthing.ilp.oer import U64_MAX
from farthing.nostr.events import is_hex64
from farthing.nostr.nip19 import InvalidNip19, Nevent, Note, Nprofile, Npub, decode, encode

# Characters that move the cursor, change colours or reverse the direction of the text.
_UNSAFE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_LAST_SECOND = 253402300799  # of the year 9999, the last that `datetime` knows
# Joins the parts of one emoji, and does not change the direction.
_JOINER = "\u200d"


def plain(text: str) -> str:
    """The text in one line, without control characters for the terminal."""
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\r\t":
        return " "
    if character != _JOINER and unicodedata.category(character) in _UNSAFE:
        return "\ufffd"
    return character


def moment(seconds: int) -> str:
    """A time as a date, or as a number of seconds if no date exists for it."""
    if not 0 <= seconds <= _LAST_SECOND:
        return f"second {seconds}"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def pubkey(text: str) -> str:
    """A public key as typed: hex, npub or nprofile."""
    if not text or is_hex64(text):  # argparse asks about an empty default too
        return text
    try:
        entity = decode(text.removeprefix("nostr:"))
    except InvalidNip19:
        entity = None
    if isinstance(entity, Npub | Nprofile):
        return entity.pubkey
    raise argparse.ArgumentTypeError(
        f"expected a public key (npub1…, nprofile1… or 64 hex digits), got {plain(text)[:80]!r}"
    )


def ilp_address(text: str) -> str:
    """An ILP address of somebody else, who can be reached by it from elsewhere."""
    if text and (not is_valid(text) or is_peer(text)):  # argparse asks about an empty default too
        raise argparse.ArgumentTypeError(
            f"expected an ILP address such as g.alice, got {plain(text)[:80]!r}"
        )
    return text


def event_id(text: str) -> str:
    """An event's id as typed: hex, note or nevent."""
    if is_hex64(text):
        return text
    try:
        entity = decode(text.removeprefix("nostr:"))
    except InvalidNip19:
        entity = None
    if isinstance(entity, Note | Nevent):
        return entity.id
    raise argparse.ArgumentTypeError(
        f"expected an event id (note1…, nevent1… or 64 hex digits), got {plain(text)[:80]!r}"
    )


class KeyOrId(NamedTuple):
    hex: str
    is_event: bool


def key_or_id(text: str) -> KeyOrId:
    """A key or an event's id as typed. Hex digits are taken for a key."""
    for read, is_event in ((pubkey, False), (event_id, True)):
        try:
            if found := read(text):
                return KeyOrId(found, is_event)
        except argparse.ArgumentTypeError:
            continue
    raise argparse.ArgumentTypeError(
        "expected a public key or an event id (npub1…, nprofile1…, note1…, nevent1… or 64 hex"
        f" digits), got {plain(text)[:80]!r}"
    )


def filter_json(text: str) -> str:
    """A NIP-01 filter as JSON, with keys and ids in every common form."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"expected a filter as JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a filter as a JSON object")
    for name, read in (("authors", pubkey), ("#p", pubkey), ("ids", event_id), ("#e", event_id)):
        if isinstance(value.get(name), list):
            value[name] = [_read(read, each) for each in value[name]]
    return json.dumps(value)


def _read(read: Any, value: object) -> object:
    return read(value) if isinstance(value, str) and not is_hex64(value) else value


def whole_number(text: str) -> int:
    """An amount or a number of things: never negative, and no more than a packet can carry."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(U64_MAX))
    if not is_number or int(text) > U64_MAX:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from 0 to {U64_MAX}, got {plain(text)[:40]!r}"
        )
    return int(text)


def nothing(about: str) -> None:
    """Say to a person that a list is empty. A program that reads the list reads an empty one."""
    print(about, file=sys.stderr)


def npub(key: str) -> str:
    return encode(Npub(key))


def event_line(event: Mapping[str, Any]) -> str:
    """An event in one line."""
    content = " ".join(plain(event["content"]).split())
    who = plain(event["pubkey"])[:8]
    return f"{moment(event['created_at'])}  {who}  kind {event['kind']:<5}  {content[:100]}"


def row(name: str, value: str) -> None:
    print(f"{name:<12}{plain(value)}", flush=True)
