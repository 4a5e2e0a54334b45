"""Lists of filters: comparing two lists, and merging filters without changing the matches."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

import orjson

from farthing.btp_nips.errors import LimitExceeded
from farthing.nostr.filters import Filter

_LISTS: Final = ("ids", "authors", "kinds")


def canonical(filters: Iterable[Filter]) -> list[bytes]:
    """The filters as JSON, without repetitions, in one order."""
    return sorted({_json(filter) for filter in filters})


def same_filters(one: Iterable[Filter], other: Iterable[Filter]) -> bool:
    return canonical(one) == canonical(other)


def fingerprint(filters: Iterable[Filter]) -> str:
    """A text that is equal for equal lists of filters. Equal lists share one subscription at
    another relay."""
    return sha256(b"[" + b",".join(canonical(filters)) + b"]").hexdigest()


def check_filters(filters: Sequence[Filter], most_filters: int, most_values: int) -> None:
    if len(filters) > most_filters:
        raise LimitExceeded(f"expected at most {most_filters} filters, got {len(filters)}")
    values = sum(filter.value_count() for filter in filters)
    if values > most_values:
        raise LimitExceeded(f"expected at most {most_values} values in filters, got {values}")


def merge_filters(filters: Iterable[Filter]) -> tuple[Filter, ...]:
    """Fewer filters that match exactly the same events.

    Two filters are merged only if they differ in the values of one list alone and have no limit.
    Any other merge would match more events.
    """
    merged = list({_json(filter): filter for filter in filters}.values())
    while True:
        before = len(merged)
        for name in _list_names(merged):
            merged = _merged_in(name, merged)
        if len(merged) == before:
            return tuple(sorted(merged, key=_json))


def _list_names(filters: Sequence[Filter]) -> list[str]:
    letters = {letter for filter in filters for letter in filter.tags}
    return [*_LISTS, *sorted(letters)]


def _merged_in(name: str, filters: Sequence[Filter]) -> list[Filter]:
    """One filter for each group of filters that differ only in the values of one list."""
    kept: list[Filter] = []
    groups: dict[bytes, Filter] = {}
    for filter in filters:
        values = _values(filter, name)
        if values is None or filter.limit is not None:
            kept.append(filter)
            continue
        rest = _json(_with_values(filter, name, frozenset()))
        known = groups.get(rest)
        groups[rest] = (
            filter if known is None else _with_values(filter, name, _both(known, name, values))
        )
    return [*kept, *groups.values()]


def _both(known: Filter, name: str, values: frozenset[str] | frozenset[int]) -> frozenset[object]:
    return frozenset(_values(known, name) or ()) | frozenset(values)


def _values(filter: Filter, name: str) -> frozenset[str] | frozenset[int] | None:
    values: frozenset[str] | frozenset[int] | None = (
        getattr(filter, name) if name in _LISTS else filter.tags.get(name)
    )
    return values


def _with_values(filter: Filter, name: str, values: frozenset[object]) -> Filter:
    if name in _LISTS:
        return replace(filter, **{name: values})  # type: ignore[arg-type]
    return replace(filter, tags={**filter.tags, name: values})  # type: ignore[dict-item]


def _json(filter: Filter) -> bytes:
    return orjson.dumps(filter.as_dict())
