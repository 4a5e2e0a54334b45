"""Filters (NIP-01): parsing with clear reasons for refusals, and matching."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from farthing.nostr.events import MAX_CREATED_AT, Event, is_hex64
from farthing.nostr.kinds import MAX_KIND

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TAG_KEYS = {f"#{letter}": letter for letter in _LETTERS}
_HEX_TAGS = frozenset("ep")  # NIP-01: their values are always 64 hexadecimal digits


_SEARCH_MAX = 256
_SEARCH_WORDS_MAX = 32
_WORDS = re.compile(r"[^\W_]+").findall


class InvalidFilter(ValueError):
    """The filter cannot be read. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A field that is None sets no condition; an empty field matches nothing."""

    ids: frozenset[str] | None = None
    authors: frozenset[str] | None = None
    kinds: frozenset[int] | None = None
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    since: int | None = None
    until: int | None = None
    limit: int | None = None
    search: str | None = None  # NIP-50

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
        return self.matches_tags(event) and self._matches_search(event)

    def _matches_search(self, event: Event) -> bool:
        """Whether all words are in the content. Used for a new event, which is not in an index
        yet."""
        if self.search is None:
            return True
        wanted = frozenset(map(_plain, search_words(self.search)))
        # An index finds nothing either where there is no word.
        return bool(wanted) and wanted <= _words_in(event.content)

    @property
    def is_of_ids_alone(self) -> bool:
        others = (self.authors, self.kinds, self.since, self.until, self.search)
        return self.ids is not None and not self.tags and all(each is None for each in others)

    def has_author(self, pubkey: str) -> bool:
        return self.authors is None or pubkey in self.authors

    def matches_tags(self, event: Event) -> bool:
        return all(
            any(value in wanted for value in event.values(letter))
            for letter, wanted in self.tags.items()
        )

    def with_limit(self, default: int, most: int) -> "Filter":
        limit = default if self.limit is None else self.limit
        return replace(self, limit=min(limit, most))

    def value_count(self) -> int:
        fields: list[Iterable[object] | None] = [self.ids, self.authors, self.kinds]
        return sum(len(list(values)) for values in [*fields, *self.tags.values()] if values)

    def as_dict(self) -> dict[str, object]:
        """The filter as NIP-01 writes it, in one fixed order."""
        sets: dict[str, Iterable[str] | Iterable[int] | None] = {
            "ids": self.ids,
            "authors": self.authors,
            "kinds": self.kinds,
            **{f"#{letter}": values for letter, values in sorted(self.tags.items())},
        }
        numbers = {"since": self.since, "until": self.until, "limit": self.limit}
        return {
            **{name: sorted(values) for name, values in sets.items() if values is not None},
            **{name: number for name, number in numbers.items() if number is not None},
            **({} if self.search is None else {"search": self.search}),
        }


def search_words(text: str) -> list[str]:
    """The words of a search. Extensions of NIP-50, such as `language:en`, are left out."""
    words = _WORDS(" ".join(part for part in text.split() if ":" not in part))
    return words[:_SEARCH_WORDS_MAX]


# Many searches are compared with the same new event.
@lru_cache(maxsize=8)
def _words_in(content: str) -> frozenset[str]:
    return frozenset(_WORDS(_plain(content)))


def _plain(text: str) -> str:
    """The text without case and accents, as an index compares words."""
    if not text.isascii():
        parts = unicodedata.normalize("NFD", text)
        text = "".join(part for part in parts if not unicodedata.combining(part))
    return text.lower()


def parse_filter(value: object, *, may_search: bool = False) -> Filter:
    """The filter that a decoded JSON value describes.

    An unknown key is refused: ignoring a condition would answer another question.
    """
    if type(value) is not dict:
        raise InvalidFilter("filter is not an object")
    fields: dict[str, object] = {}
    tags: dict[str, frozenset[str]] = {}
    for key, content in value.items():
        if key in ("ids", "authors"):
            fields[key] = _hex_values(key, content)
        elif key == "kinds":
            fields[key] = _kinds(content)
        elif key in ("since", "until", "limit"):
            fields[key] = _number(key, content)
        elif key == "search" and may_search:
            fields[key] = _search(content)
        elif key in _TAG_KEYS:
            letter = _TAG_KEYS[key]
            tags[letter] = (_hex_values if letter in _HEX_TAGS else _strings)(key, content)
        else:
            raise InvalidFilter(f"unknown filter key {key[:32]!r}")
    return Filter(**fields, tags=tags)  # type: ignore[arg-type]


def _array(key: str, content: object) -> list[object]:
    if type(content) is not list:
        raise InvalidFilter(f"{key} is not an array")
    return content


def _strings(key: str, content: object) -> frozenset[str]:
    values = _array(key, content)
    if any(type(value) is not str for value in values):
        raise InvalidFilter(f"{key} holds something other than strings")
    return frozenset(values)  # type: ignore[arg-type]


def _hex_values(key: str, content: object) -> frozenset[str]:
    values = _array(key, content)
    if not all(map(is_hex64, values)):
        raise InvalidFilter(f"{key} holds something other than 64 lowercase hexadecimal digits")
    return frozenset(values)  # type: ignore[arg-type]


def _search(content: object) -> str:
    if type(content) is not str or not 1 <= len(content) <= _SEARCH_MAX:
        raise InvalidFilter(f"search is not a text of 1 to {_SEARCH_MAX} characters")
    return content


def _kinds(content: object) -> frozenset[int]:
    values = _array("kinds", content)
    if any(type(value) is not int or not 0 <= value <= MAX_KIND for value in values):
        raise InvalidFilter("kinds holds something other than numbers from 0 to 65535")
    return frozenset(values)  # type: ignore[arg-type]


def _number(key: str, content: object) -> int:
    if type(content) is not int or content < 0:
        raise InvalidFilter(f"{key} is not a whole number")
    # A later `until` or a larger `limit` has the same meaning as the latest and the largest
    # possible one.
    return min(content, MAX_CREATED_AT)
