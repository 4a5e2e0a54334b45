"""Nostr events (NIP-01): strict structure, the id recomputed, the signature checked by BIP-340.

Storage, prices and other reasons for refusals are decided elsewhere.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final

import orjson
from coincurve import PrivateKey, PublicKeyXOnly

from farthing.nostr.kinds import MAX_KIND, Keeping, keeping

Tag = tuple[str, ...]

# Ten hexadecimal digits.
MAX_CREATED_AT: Final = 2**40 - 1

_HEX64 = re.compile(r"[0-9a-f]{64}").fullmatch
_HEX128 = re.compile(r"[0-9a-f]{128}").fullmatch
_DECIMAL = re.compile(r"[0-9]{1,15}").fullmatch
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class InvalidEvent(ValueError):
    """The event's structure, id or signature is wrong; the message says which."""


def is_hex64(value: object) -> bool:
    return type(value) is str and _HEX64(value) is not None


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    pubkey: str
    created_at: int
    kind: int
    tags: tuple[Tag, ...]
    content: str
    sig: str

    @property
    def keeping(self) -> Keeping:
        return keeping(self.kind)

    @property
    def address(self) -> str | None:
        """`kind:pubkey:d` of a replaceable or addressable event, None of any other."""
        match self.keeping:
            case Keeping.REPLACEABLE:
                return f"{self.kind}:{self.pubkey}:"
            case Keeping.ADDRESSABLE:
                return f"{self.kind}:{self.pubkey}:{self.first_value('d') or ''}"
        return None

    @property
    def expiration(self) -> int | None:
        """The second from which the event no longer exists (NIP-40)."""
        if not self.tags:
            return None
        value = self.first_value("expiration")
        return int(value) if value is not None and _DECIMAL(value) else None

    @property
    def is_protected(self) -> bool:
        """Only its own author may publish it (NIP-70)."""
        return any(tag and tag[0] == "-" for tag in self.tags)

    def first_value(self, name: str) -> str | None:
        for tag in self.tags:
            if len(tag) > 1 and tag[0] == name:
                return tag[1]
        return None

    def values(self, name: str) -> Iterator[str]:
        return (tag[1] for tag in self.tags if len(tag) > 1 and tag[0] == name)

    def indexed_tags(self) -> Iterator[tuple[str, str]]:
        """(letter, value) of each tag that filters can ask for."""
        return ((tag[0], tag[1]) for tag in self.tags if len(tag) > 1 and tag[0] in _LETTERS)

    def as_dict(self) -> dict[str, object]:
        return {
            "id": self.id,
            "pubkey": self.pubkey,
            "created_at": self.created_at,
            "kind": self.kind,
            "tags": self.tags,
            "content": self.content,
            "sig": self.sig,
        }

    def to_json(self) -> str:
        return orjson.dumps(self.as_dict()).decode()


def json_opening(event_id: str, pubkey: str) -> str:
    """How the JSON of an event begins."""
    return f'{{"id":"{event_id}","pubkey":"{pubkey}",'


def json_closing(signature: str) -> str:
    """How the JSON of an event ends."""
    return f',"sig":"{signature}"}}'


def compute_id(
    pubkey: str, created_at: int, kind: int, tags: Sequence[Sequence[str]], content: str
) -> str:
    serialised = orjson.dumps([0, pubkey, created_at, kind, tags, content])
    return sha256(serialised).hexdigest()


def parse_event(value: object) -> Event:
    """The event that a decoded JSON value describes. Checks structure only; see `verify`.

    Fields that NIP-01 does not name are dropped: they are not covered by the id.
    """
    if type(value) is not dict:
        raise InvalidEvent("event is not an object")
    for name, pattern in (("id", _HEX64), ("pubkey", _HEX64), ("sig", _HEX128)):
        field = value.get(name)
        if type(field) is not str or pattern(field) is None:
            raise InvalidEvent(f"{name} is not lowercase hexadecimal of the right length")
    return Event(
        id=value["id"],
        pubkey=value["pubkey"],
        created_at=_integer(value, "created_at", MAX_CREATED_AT),
        kind=_integer(value, "kind", MAX_KIND),
        tags=_tags(value.get("tags")),
        content=_content(value.get("content")),
        sig=value["sig"],
    )


def known_event(json: str) -> Event:
    """An event that was parsed and checked when it was stored, from its own JSON."""
    fields = orjson.loads(json)
    fields["tags"] = tuple(map(tuple, fields["tags"]))
    return Event(**fields)


def _integer(value: Mapping[str, object], name: str, most: int) -> int:
    number = value.get(name)
    # bool is an int to isinstance, and 1e3 is a float: neither is an integer on the wire.
    if type(number) is not int:
        raise InvalidEvent(f"{name} is not an integer")
    if not 0 <= number <= most:
        raise InvalidEvent(f"{name} is out of range")
    return number


def _tags(tags: object) -> tuple[Tag, ...]:
    if type(tags) is not list:
        raise InvalidEvent("tags is not an array")
    for tag in tags:
        if type(tag) is not list:
            raise InvalidEvent("a tag is not an array")
        for element in tag:
            if type(element) is not str:
                raise InvalidEvent("a tag holds something other than strings")
    return tuple(tuple(tag) for tag in tags)


def _content(content: object) -> str:
    if type(content) is not str:
        raise InvalidEvent("content is not a string")
    return content


def verify(event: Event) -> None:
    """Refuse an event whose id or signature is wrong.

    The id is recomputed first: a signature over the claimed id says nothing about the content.
    """
    if event_id(event) != event.id:
        raise InvalidEvent("id does not match the event")
    if not _signed_by(event.pubkey, event.id, event.sig):
        raise InvalidEvent("signature does not match")


def event_id(event: Event) -> str:
    try:
        return compute_id(event.pubkey, event.created_at, event.kind, event.tags, event.content)
    except orjson.JSONEncodeError as error:  # a lone surrogate has no UTF-8 form
        raise InvalidEvent("event is not valid UTF-8") from error


def _signed_by(pubkey: str, message: str, signature: str) -> bool:
    try:
        return _public_key(pubkey).verify(bytes.fromhex(signature), bytes.fromhex(message))
    except ValueError:  # not a point on the curve
        return False


@lru_cache(maxsize=4096)
def _public_key(pubkey: str) -> PublicKeyXOnly:
    # Cached: lifting x to the curve costs a square root, and the same authors write often.
    return PublicKeyXOnly(bytes.fromhex(pubkey))


def public_key_of(secret_key: bytes) -> str:
    return PrivateKey(secret_key).public_key_xonly.format().hex()


def sign_event(
    secret_key: bytes,
    *,
    kind: int,
    content: str,
    created_at: int,
    tags: Sequence[Sequence[str]] = (),
) -> Event:
    pubkey = public_key_of(secret_key)
    frozen = tuple(tuple(tag) for tag in tags)
    identity = compute_id(pubkey, created_at, kind, frozen, content)
    signature = PrivateKey(secret_key).sign_schnorr(bytes.fromhex(identity)).hex()
    return Event(identity, pubkey, created_at, kind, frozen, content, signature)
