"""Aether events: the JSON gateway contract, the canonical octets, the BLAKE3 id, the signature.

Prices, duplicates and the operator's rules are decided elsewhere; `check` takes such rules as
policies and runs them at their place in the order of checks.
"""

import base64
import binascii
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from blake3 import blake3

from farthing.aether import keys, kinds
from farthing.aether.errors import InvalidEvent, ValidationFailed
from farthing.aether.numbers import MAX_U16, MAX_U64, SECOND, nanoseconds
from farthing.nostr.kinds import Keeping

Tag = tuple[str, ...]  # the key, then the values

EXPIRATION: Final = "expiration"  # the only key that may be longer than eight characters
MAX_VALUES: Final = 16
MAX_VALUE_OCTETS: Final = 1024

_TAG_KEY = re.compile(rf"[A-Za-z0-9_]{{1,8}}|{EXPIRATION}").fullmatch
_DIGITS = re.compile(r"[0-9]+").fullmatch
_SECONDS_DIGITS: Final = range(1, 12)
_NANOSECONDS_DIGITS: Final = range(18, 21)
_u16 = struct.Struct(">H").pack
_times_and_kind = struct.Struct(">QH").pack


@dataclass(frozen=True, slots=True)
class Event:
    """An event, with the attributes that the store needs of every stored item."""

    id: str
    pubkey: str
    created_at: int
    kind: int
    tags: tuple[Tag, ...]
    content: bytes
    sig: str

    @property
    def sort_key(self) -> str:
        return sort_key(self.created_at, self.id)

    @property
    def keeping(self) -> Keeping:
        return kinds.keeping(self.kind)

    @property
    def address(self) -> str | None:
        """`kind:pubkey:d` of a replaceable event, None of any other."""
        match self.keeping:
            case Keeping.REPLACEABLE:
                return f"{self.kind}:{self.pubkey}:"
            case Keeping.ADDRESSABLE:
                return f"{self.kind}:{self.pubkey}:{self._first_value('d')}"
        return None

    @property
    def expires_ns(self) -> int | None:
        """The nanosecond from which the event no longer exists."""
        value = self._first_value(EXPIRATION)
        if not value:
            return None
        return int(value) * (SECOND if len(value) in _SECONDS_DIGITS else 1)

    @property
    def expiration(self) -> int | None:
        """The first whole second at which the event no longer exists."""
        expires = self.expires_ns
        return None if expires is None else -(-expires // SECOND)

    def indexed_tags(self) -> Iterator[tuple[str, str]]:
        """Each (key, value) that a filter can match, once: every value of every tag."""
        return iter(dict.fromkeys((tag[0], value) for tag in self.tags for value in tag[1:]))

    def as_dict(self) -> dict[str, object]:
        """The event by the gateway contract; octets that are not UTF-8 go as base64."""
        return {
            "event_id": self.id,
            "pubkey": self.pubkey,
            "kind": self.kind,
            "created_at": self.created_at,
            "tags": self.tags,
            **content_field(self.content),
            "sig": self.sig,
        }

    def to_json(self) -> str:
        return orjson.dumps(self.as_dict()).decode()

    def _first_value(self, key: str) -> str:
        """The first value of the first tag with this key, empty if there is none."""
        for tag in self.tags:
            if tag[0] == key:
                return tag[1] if len(tag) > 1 else ""
        return ""


Policy = Callable[[Event], None]


def content_field(content: bytes) -> dict[str, str]:
    try:
        return {"content": content.decode()}
    except UnicodeDecodeError:
        return {"content_b64": base64.b64encode(content).decode()}


def sort_key(created_at: int, event_id: str) -> str:
    """A key whose ascending order is newest first, and lowest id first among equal times."""
    return f"{MAX_U64 - created_at:016x}{event_id}"


def tag_bytes(tags: Sequence[Sequence[str]]) -> bytes:
    parts = [_u16(len(tags))]
    for key, *values in tags:
        parts += (bytes((len(key),)), key.encode(), _u16(len(values)))
        for value in values:
            octets = value.encode()
            parts += (_u16(len(octets)), octets)
    return b"".join(parts)


def canonical_bytes(
    pubkey: str, created_at: int, kind: int, tags: Sequence[Sequence[str]], content: bytes
) -> bytes:
    head = bytes.fromhex(pubkey) + _times_and_kind(created_at, kind)
    return head + tag_bytes(tags) + content


def compute_id(
    pubkey: str, created_at: int, kind: int, tags: Sequence[Sequence[str]], content: bytes
) -> str:
    return blake3(canonical_bytes(pubkey, created_at, kind, tags, content)).hexdigest()


def parse_event(value: object, *, max_tags: int = MAX_U16) -> Event:
    """The event that a decoded JSON value describes. Checks the shape only; see `check`.

    `max_tags` bounds tags and values together. Fields that the contract does not name are dropped:
    they are not covered by the id.
    """
    if type(value) is not dict:
        raise InvalidEvent("expected an event object")
    event_id = value.get("event_id")
    if not keys.is_key(event_id):
        raise InvalidEvent("event_id: expected 64 lower-case hexadecimal digits")
    try:
        return _parse_fields(value, max_tags)
    except InvalidEvent as error:
        error.event_id = event_id
        raise


def _parse_fields(value: Mapping[str, object], max_tags: int) -> Event:
    if not keys.is_key(value.get("pubkey")):
        raise InvalidEvent("pubkey: expected 64 lower-case hexadecimal digits")
    if not keys.is_signature(value.get("sig")):
        raise InvalidEvent("sig: expected 128 lower-case hexadecimal digits")
    created_at = nanoseconds(value.get("created_at"))
    if created_at is None:
        raise InvalidEvent(
            "created_at: expected nanoseconds, an integer or decimal text of 64 bits"
        )
    kind = value.get("kind")
    if type(kind) is not int or not 0 <= kind <= MAX_U16:
        raise InvalidEvent(f"kind: expected an integer from 0 to {MAX_U16}")
    return Event(
        id=value["event_id"],  # type: ignore[arg-type]
        pubkey=value["pubkey"],  # type: ignore[arg-type]
        created_at=created_at,
        kind=kind,
        tags=_parse_tags(value.get("tags"), min(max_tags, MAX_U16)),
        content=_parse_content(value),
        sig=value["sig"],  # type: ignore[arg-type]
    )


def _parse_tags(tags: object, most: int) -> tuple[Tag, ...]:
    if type(tags) is not list:
        raise InvalidEvent("tags: expected an array")
    room = most
    for tag in tags:
        if type(tag) is not list:
            raise InvalidEvent("tags: expected arrays of a key and values")
        room -= max(len(tag), 1)
        if room < 0:
            raise InvalidEvent(f"tags: expected at most {most} tags and values together")
        _check_tag(tag)
    return tuple(map(tuple, tags))


def _check_tag(tag: list[object]) -> None:
    if not tag or not is_tag_key(tag[0]):
        raise InvalidEvent("tags: expected a key of 1-8 letters, digits or underscores")
    if len(tag) > 1 + MAX_VALUES:
        raise InvalidEvent(f"tags: expected at most {MAX_VALUES} values in a tag")
    for value in tag[1:]:
        if type(value) is not str or len(_utf8("tags", value)) > MAX_VALUE_OCTETS:
            raise InvalidEvent(
                f"tags: expected values of at most {MAX_VALUE_OCTETS} octets of text"
            )
    if tag[0] == EXPIRATION and not _is_expiration(tag[1] if len(tag) > 1 else ""):
        raise InvalidEvent("expiration: expected up to 11 digits (seconds) or 18-20 (nanoseconds)")


def is_tag_key(key: object) -> bool:
    return type(key) is str and _TAG_KEY(key) is not None


def _is_expiration(value: object) -> bool:
    return (
        type(value) is str
        and _DIGITS(value) is not None
        and (len(value) in _SECONDS_DIGITS or len(value) in _NANOSECONDS_DIGITS)
    )


def _parse_content(value: Mapping[str, object]) -> bytes:
    if ("content" in value) == ("content_b64" in value):
        raise InvalidEvent("expected exactly one of content and content_b64")
    if "content" in value:
        content = value["content"]
        if type(content) is not str:
            raise InvalidEvent("content: expected text")
        return _utf8("content", content)
    encoded = value["content_b64"]
    if type(encoded) is not str:
        raise InvalidEvent("content_b64: expected base64 text")
    try:
        content_octets = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidEvent("content_b64: expected base64 with padding") from None
    # Python's decoder ignores surplus bits and padding, but each content must have exactly one
    # text.
    if base64.b64encode(content_octets).decode() != encoded:
        raise InvalidEvent("content_b64: expected base64 in its one canonical form")
    return content_octets


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise InvalidEvent(f"{name}: expected valid Unicode") from None


def known_event(json: str | bytes) -> Event:
    """An event that was parsed and checked when it was stored, from its own JSON."""
    fields = orjson.loads(json)
    text = fields.get("content")
    return Event(
        id=fields["event_id"],
        pubkey=fields["pubkey"],
        created_at=fields["created_at"],
        kind=fields["kind"],
        tags=tuple(map(tuple, fields["tags"])),
        content=base64.b64decode(fields["content_b64"]) if text is None else text.encode(),
        sig=fields["sig"],
    )


def check(event: Event, policies: Iterable[Policy] = ()) -> None:
    """Refuse what breaks a policy, then a wrong id, a weak key and a wrong signature.

    A policy raises ValidationFailed or another AetherError.
    """
    for policy in policies:
        policy(event)
    verify(event)


def verify(event: Event) -> None:
    """Refuse an event whose id or signature is wrong.

    The id is recomputed first: a signature over the claimed id says nothing about the content.
    """
    computed = compute_id(event.pubkey, event.created_at, event.kind, event.tags, event.content)
    if computed != event.id:
        raise ValidationFailed("event_id does not match the event", event_id=event.id)
    if keys.is_weak(event.pubkey):
        raise ValidationFailed("pubkey is a weak key: anybody can sign for it", event_id=event.id)
    if not keys.is_signed(event.pubkey, bytes.fromhex(event.id), event.sig):
        raise ValidationFailed("sig does not match event_id and pubkey", event_id=event.id)


def sign_event(
    seed: bytes,
    *,
    kind: int,
    content: str | bytes,
    created_at: int,
    tags: Sequence[Sequence[str]] = (),
) -> Event:
    pubkey = keys.public_key(seed)
    octets = content.encode() if isinstance(content, str) else content
    frozen = tuple(tuple(tag) for tag in tags)
    event_id = compute_id(pubkey, created_at, kind, frozen, octets)
    signature = keys.sign(seed, bytes.fromhex(event_id))
    return Event(event_id, pubkey, created_at, kind, frozen, octets, signature)
