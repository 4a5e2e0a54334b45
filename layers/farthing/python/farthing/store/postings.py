"""Index entries: where an event is found, newest first, without reading it.

A posting may point nowhere (a write that did not finish, an event since deleted): readers skip it.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from farthing.nostr.events import MAX_CREATED_AT, Event
from farthing.store.table import EXPIRES, Item, Put, Row, Table

# No partition takes all writes: what every event enters is spread by the event's id.
SHARDS = 8

_TIME_DIGITS = 10
_LONGEST_VALUE = 256


class Posting(NamedTuple):
    sk: str
    id: str
    kind: int
    pubkey: str
    written: int  # second in which it was written

    @property
    def created_at(self) -> int:
        return MAX_CREATED_AT - int(self.sk[:_TIME_DIGITS], 16)


def posting_of(row: Row) -> Posting:
    item = row.item
    return Posting(row.sk, row.sk[_TIME_DIGITS:], item["k"], item["p"], item["w"])


def item_of(sk: str) -> tuple[int, bytes]:
    """(timestamp, id) that a sort key stands for."""
    return MAX_CREATED_AT - int(sk[:_TIME_DIGITS], 16), bytes.fromhex(sk[_TIME_DIGITS:])


def sort_key(created_at: int, event_id: str) -> str:
    """Ascending is newest first, and the lowest id first among equals."""
    return f"{MAX_CREATED_AT - created_at:010x}{event_id}"


def lowest_sort_key(until: int | None) -> str | None:
    return None if until is None else sort_key(until, "")


def highest_sort_key(since: int | None) -> str | None:
    return None if since is None else sort_key(since, "~")  # '~' is above every hex digit


def by_author(pubkey: str) -> str:
    return f"a#{pubkey}"


def by_author_and_kind(pubkey: str, kind: int) -> str:
    return f"b#{pubkey}#{kind}"


def by_kind(kind: int) -> list[str]:
    return [f"k#{kind}#{shard}" for shard in range(SHARDS)]


def by_tag(letter: str, value: str) -> str:
    return f"t#{letter}#{short_value(value)}"


def everything() -> list[str]:
    return [f"z#{shard}" for shard in range(SHARDS)]


def short_value(value: str) -> str:
    """A tag's value as part of a key: keys have a maximum length, tags do not."""
    encoded = value.encode()
    if len(encoded) <= _LONGEST_VALUE:
        return f"={value}"
    return f"~{sha256(encoded).hexdigest()}"


def index_keys(event: Event) -> Iterator[str]:
    shard = int(event.id[:8], 16) % SHARDS
    yield by_author(event.pubkey)
    yield by_author_and_kind(event.pubkey, event.kind)
    yield f"k#{event.kind}#{shard}"
    yield f"z#{shard}"
    yield from dict.fromkeys(by_tag(letter, value) for letter, value in event.indexed_tags())


def postings_of(event: Event, written: int) -> list[Put]:
    sk = sort_key(event.created_at, event.id)
    item: Item = {"k": event.kind, "p": event.pubkey, "w": written}
    if event.expiration is not None:
        item = {**item, EXPIRES: event.expiration}
    return [Put(Table.POSTINGS, pk, sk, item) for pk in index_keys(event)]


def posting_keys(event: Event) -> list[tuple[str, str]]:
    sk = sort_key(event.created_at, event.id)
    return [(pk, sk) for pk in index_keys(event)]
