"""The changes feed's own messages and filter (NIP-CF)."""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from farthing.nostr.filters import Filter, InvalidFilter, parse_filter


@dataclass(frozen=True, slots=True)
class ChangesFilter:
    """`since` and `limit` count numbers here, not seconds; the rest is as in NIP-01."""

    events: Filter
    since: int
    limit: int | None
    live: bool

    def as_dict(self) -> dict[str, object]:
        return {**self.events.as_dict(), "since": self.since, "live": self.live}


def parse_changes_filter(value: object) -> ChangesFilter:
    if type(value) is not dict:
        raise InvalidFilter("filter is not an object")
    if not value.keys().isdisjoint({"ids", "until"}):
        raise InvalidFilter("a changes filter has neither ids nor until")
    live = value.get("live", False)
    if type(live) is not bool:
        raise InvalidFilter("live is not true or false")
    own = {"since", "limit", "live"}
    events = parse_filter({name: part for name, part in value.items() if name not in own})
    return ChangesFilter(events, _number(value, "since") or 0, _number(value, "limit"), live)


def _number(value: Mapping[str, object], name: str) -> int | None:
    number = value.get(name)
    if name in value and (type(number) is not int or number < 0):
        raise InvalidFilter(f"{name} is not a whole number")
    return number if type(number) is int else None


def _frame(subscription_id: str, *parts: object) -> str:
    return orjson.dumps(("CHANGES", subscription_id, *parts)).decode()


def change_frame(subscription_id: str, number: int, event_json: str) -> str:
    return f"{_frame(subscription_id, 'EVENT', number)[:-1]},{event_json}]"


def changes_eose(subscription_id: str, last: int, truncated_at: int | None = None) -> str:
    """`last` was the log's highest number when the answer began. An answer that was cut short names
    the number to continue from."""
    if truncated_at is None:
        return _frame(subscription_id, "EOSE", last)
    return _frame(subscription_id, "EOSE", last, {"truncated": True, "next": truncated_at})


def changes_error(subscription_id: str, message: str) -> str:
    return _frame(subscription_id, "ERR", message)
