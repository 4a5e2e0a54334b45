"""Aether's filters: parsing with clear reasons for refusals, and matching."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from farthing.aether import keys
from farthing.aether.errors import InvalidMessage
from farthing.aether.events import Event, is_tag_key
from farthing.aether.numbers import MAX_U16, nanoseconds, u64

PREFIX_DIGITS: Final = 32  # digits of an author's key by which lists of authors are stored

Tags = dict[str, frozenset[str]]


class InvalidFilter(InvalidMessage):
    """The filter cannot be read. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A field that is None sets no condition; an empty field matches nothing.

    `authors` are keys and first halves of keys. If a client names both `authors` and
    `pubkey_prefixes`, the field has the entries that can match both.
    """

    ids: frozenset[str] | None = None
    authors: frozenset[str] | None = None
    kinds: frozenset[int] | None = None
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    since: int | None = None
    until: int | None = None
    limit: int | None = None

    def matches(self, event: Event) -> bool:
        """Whether the event matches the filter. `limit` is ignored."""
        if self.kinds is not None and event.kind not in self.kinds:
            return False
        if not self.has_author(event.pubkey):
            return False
        if self.ids is not None and event.id not in self.ids:
            return False
        if self.since is not None and event.created_at < self.since:
            return False
        if self.until is not None and event.created_at > self.until:
            return False
        return self.matches_tags(event)

    @property
    def is_of_ids_alone(self) -> bool:
        others = (self.authors, self.kinds, self.since, self.until)
        return self.ids is not None and not self.tags and all(each is None for each in others)

    def has_author(self, pubkey: str) -> bool:
        authors = self.authors
        return authors is None or pubkey in authors or pubkey[:PREFIX_DIGITS] in authors

    def matches_tags(self, event: Event) -> bool:
        return all(
            any(tag[0] == key and not wanted.isdisjoint(tag[1:]) for tag in event.tags)
            for key, wanted in self.tags.items()
        )

    def with_limit(self, default: int, most: int) -> "Filter":
        limit = default if self.limit is None else self.limit
        return replace(self, limit=min(limit, most))

    def value_count(self) -> int:
        fields = (self.ids, self.authors, self.kinds, *self.tags.values())
        return sum(len(values) for values in fields if values)

    def as_dict(self) -> dict[str, object]:
        """The filter in one fixed form and order, times as text."""
        sets: dict[str, Iterable[str] | Iterable[int] | None] = {
            "ids": self.ids,
            "pubkey_prefixes": self.authors,
            "kinds": self.kinds,
        }
        found: dict[str, object] = {
            name: sorted(values) for name, values in sets.items() if values is not None
        }
        if self.tags:
            found["tags"] = {key: sorted(values) for key, values in sorted(self.tags.items())}
        times = {"since": self.since, "until": self.until}
        found |= {name: str(time) for name, time in times.items() if time is not None}
        return found if self.limit is None else found | {"limit": self.limit}


def parse_filter(value: object) -> Filter:
    """The filter that a decoded JSON value describes.

    An unknown key is refused: ignoring a condition would answer another question.
    """
    if type(value) is not dict:
        raise InvalidFilter("filter: expected an object")
    fields: dict[str, object] = {}
    tags: Tags = {}
    for key, content in value.items():
        if key == "ids":
            fields[key] = _hex_values(key, content, (64,))
        elif key in ("authors", "pubkey_prefixes"):
            continue
        elif key == "kinds":
            fields[key] = _kinds(content)
        elif key in ("since", "until"):
            fields[key] = _time(key, content)
        elif key == "limit":
            fields[key] = _limit(content)
        elif key == "tags":
            _add_tags(tags, _tags(content))
        elif type(key) is str and key.startswith("#"):
            _add_tags(tags, {_tag_key(key[1:]): _strings(key, content)})
        else:
            raise InvalidFilter(f"unknown filter key {str(key)[:32]!r}")
    return Filter(**fields, authors=_authors(value), tags=tags)  # type: ignore[arg-type]


def _authors(value: dict[str, object]) -> frozenset[str] | None:
    keys, prefixes = "authors", "pubkey_prefixes"
    named = _hex_values(keys, value[keys], (64,)) if keys in value else None
    if prefixes not in value:
        return named
    begun = _hex_values(prefixes, value[prefixes], (PREFIX_DIGITS, 64))
    if named is None:
        return begun
    return frozenset(key for key in named if key in begun or key[:PREFIX_DIGITS] in begun)


def _add_tags(tags: Tags, found: Tags) -> None:
    twice = tags.keys() & found.keys()
    if twice:
        raise InvalidFilter(f"expected {min(twice)!r} in tags or as #{min(twice)}, got both")
    tags.update(found)


def _tags(content: object) -> Tags:
    """`{"t": ["x", "y"]}`, or pairs: `[["t", ["x", "y"]]]`, `[["t", "x"], ["t", "y"]]`."""
    if type(content) is dict:
        return {_tag_key(key): _strings("tags", values) for key, values in content.items()}
    tags: Tags = {}
    for pair in _array("tags", content):
        if type(pair) is not list or not pair:
            raise InvalidFilter("tags: expected an object, or pairs of a key and values")
        key, *values = pair
        if len(values) == 1 and type(values[0]) is list:
            values = values[0]
        key = _tag_key(key)
        tags[key] = tags.get(key, frozenset()) | _strings("tags", values)
    return tags


def _tag_key(key: object) -> str:
    if not is_tag_key(key):
        raise InvalidFilter("tags: expected keys of 1-8 letters, digits or underscores")
    return str(key)


def _array(key: str, content: object) -> list[object]:
    if type(content) is not list:
        raise InvalidFilter(f"{key[:32]}: expected an array")
    return content


def _strings(key: str, content: object) -> frozenset[str]:
    values = _array(key, content)
    if any(type(value) is not str for value in values):
        raise InvalidFilter(f"{key}: expected text")
    return frozenset(values)  # type: ignore[arg-type]


def _hex_values(key: str, content: object, lengths: tuple[int, ...]) -> frozenset[str]:
    values = _strings(key, content)
    for value in values:
        # A prefix is padded to the length of a key and checked like a key.
        if len(value) not in lengths or not keys.is_key(value.ljust(64, "0")):
            digits = " or ".join(map(str, lengths))
            raise InvalidFilter(f"{key}: expected {digits} lower-case hexadecimal digits")
    return values


def _kinds(content: object) -> frozenset[int]:
    values = _array("kinds", content)
    if any(type(value) is not int or not 0 <= value <= MAX_U16 for value in values):
        raise InvalidFilter(f"kinds: expected integers from 0 to {MAX_U16}")
    return frozenset(values)  # type: ignore[arg-type]


def _time(key: str, content: object) -> int:
    time = nanoseconds(content)
    if time is None:
        raise InvalidFilter(f"{key}: expected nanoseconds, an integer or decimal text of 64 bits")
    return time


def _limit(content: object) -> int:
    limit = u64(content)
    if limit is None:
        raise InvalidFilter("limit: expected a whole number")
    return limit
