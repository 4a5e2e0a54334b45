"""Index entries: where an event is found, newest first, without reading it.

A posting may point nowhere (a write that did not finish, an event since deleted): readers skip it.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import compress
from typing import NamedTuple

from farthing.nostr.events import MAX_CREATED_AT, Event
from farthing.nostr.negentropy.wire import ID_SIZE, RECORD_SIZE, TIMESTAMP_SIZE
from farthing.store.table import EXPIRES, Item, Put, Row, Table

# No partition takes all writes: what every event enters is spread by the event's id.
SHARDS = 8

_TIME_DIGITS = 10
_TIME_BYTES = _TIME_DIGITS // 2
_SORT_KEY_BYTES = _TIME_BYTES + ID_SIZE
_COMPLEMENT = bytes(range(255, -1, -1))
_LONGEST_VALUE = 256


class Posting(NamedTuple):
    sk: str
    id: str
    kind: int
    pubkey: str

    @property
    def created_at(self) -> int:
        return MAX_CREATED_AT - int(self.sk[:_TIME_DIGITS], 16)


def posting_of(row: Row) -> Posting:
    item = row.item
    return Posting(row.sk, id_in(row.sk), item["k"], item["p"])


def id_in(sk: str) -> str:
    return sk[_TIME_DIGITS:]


class Postings(NamedTuple):
    """Many postings, column by column, for those who read all of a list: a million of them as
    objects of their own would take longer than everything else."""

    sort_keys: Sequence[str]
    kinds: Sequence[int]
    pubkeys: Sequence[str]
    written: Sequence[int]  # second in which each was written, for the last time

    def select(self, wanted: Iterable[object]) -> "Postings":
        """Those at whose place something true stands."""
        flags = list(wanted)
        return Postings(
            list(compress(self.sort_keys, flags)),
            list(compress(self.kinds, flags)),
            list(compress(self.pubkeys, flags)),
            list(compress(self.written, flags)),
        )


def postings_in(rows: Sequence[Row]) -> Postings:
    items = [item for _, item in rows]
    return Postings(
        [sk for sk, _ in rows],
        [item["k"] for item in items],
        [item["p"] for item in items],
        [item["w"] for item in items],
    )


def records_of(sort_keys: Sequence[str]) -> bytearray:
    """The (timestamp, id) pairs that sort keys stand for, as records of a sealed vector.

    Moved column by column, a byte of every key at a time: a million take a tenth of a second, which
    parsing each would take ten times.
    """
    keys = bytes.fromhex("".join(sort_keys))
    records = bytearray(RECORD_SIZE * len(sort_keys))
    leading = TIMESTAMP_SIZE - _TIME_BYTES
    for at in range(_SORT_KEY_BYTES):
        column = keys[at::_SORT_KEY_BYTES]
        # The time counts down from all ones: its complement is the timestamp.
        records[leading + at :: RECORD_SIZE] = (
            column.translate(_COMPLEMENT) if at < _TIME_BYTES else column
        )
    return records


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
