"""Index entries, by which events are found, newest first, without being read.

A posting may have no event (after an unfinished write or a deletion): readers skip it.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import compress
from typing import Any, NamedTuple

from farthing.store.spaces import Space, Storable
from farthing.store.table import EXPIRES, Item, Put, Row, Table

# A sort key is a time that counts down from the largest one, and an id. The time has 64 bits,
# enough for nanoseconds.
_LATEST = 2**64 - 1
_TIME_DIGITS = 16
_TIME_BYTES = _TIME_DIGITS // 2
_KEY_BYTES = _TIME_BYTES + 32
_COMPLEMENT = bytes(range(255, -1, -1))
_LONGEST_VALUE = 256
_SURELY_SHORT = _LONGEST_VALUE // 4  # characters: none has more octets than four


class Posting(NamedTuple):
    sk: str
    id: str
    kind: int
    pubkey: str

    @property
    def created_at(self) -> int:
        return _LATEST - int(self.sk[:_TIME_DIGITS], 16)


def posting_of(row: Row) -> Posting:
    item = row.item
    return Posting(row.sk, id_in(row.sk), item["k"], item["p"])


def id_in(sk: str) -> str:
    return sk[_TIME_DIGITS:]


class Postings(NamedTuple):
    """Many postings, column by column, for readers of whole lists: making a million separate
    objects would take longer than all other work."""

    sort_keys: Sequence[str]
    kinds: Sequence[int]
    pubkeys: Sequence[str]
    written: Sequence[int]  # second in which each was last written

    def select(self, wanted: Iterable[object]) -> "Postings":
        """The postings whose value in `wanted` is true."""
        flags = list(wanted)
        return Postings(
            list(compress(self.sort_keys, flags)),
            list(compress(self.kinds, flags)),
            list(compress(self.pubkeys, flags)),
            list(compress(self.written, flags)),
        )


class PostingRows(Sequence[Row]):
    """Rows that an engine can also give column by column, which is faster."""

    @abstractmethod
    def columns(self) -> Postings: ...


def postings_in(rows: Sequence[Row]) -> Postings:
    if isinstance(rows, PostingRows):
        return rows.columns()
    items = [item for _, item in rows]
    return Postings(
        [sk for sk, _ in rows],
        [item["k"] for item in items],
        [item["p"] for item in items],
        [item["w"] for item in items],
    )


def records_of(sort_keys: Sequence[str]) -> bytearray:
    """The (timestamp, id) pairs of sort keys, as records of a sealed vector.

    The bytes are copied column by column, one byte of every key at a time: a million keys take a
    tenth of a second. Parsing each key would take ten times as long.
    """
    records = bytearray.fromhex("".join(sort_keys))
    for at in range(_TIME_BYTES):
        # The time counts down from the largest number, so its complement is the timestamp.
        records[at::_KEY_BYTES] = records[at::_KEY_BYTES].translate(_COMPLEMENT)
    return records


def sort_key(created_at: int, event_id: str) -> str:
    """Ascending is newest first, and the lowest id first among equals."""
    return f"{_LATEST - created_at:016x}{event_id}"


def lowest_sort_key(until: int | None) -> str | None:
    return None if until is None else sort_key(until, "")


def highest_sort_key(since: int | None) -> str | None:
    return None if since is None else sort_key(since, "~")  # '~' is above every hex digit


def short_value(value: str) -> str:
    """A tag's value as part of a key: keys have a maximum length, and tags have none."""
    if len(value) <= _SURELY_SHORT:
        return f"={value}"
    encoded = value.encode()
    if len(encoded) <= _LONGEST_VALUE:
        return f"={value}"
    return f"~{sha256(encoded).hexdigest()}"


class Lists:
    """The lists of one space, by their partition keys, and the postings that enter them. A list of
    all events is divided into shards by event id (see `Engine.shards`)."""

    def __init__(self, space: Space[Any], shards: int) -> None:
        self._space = space
        self._prefix = space.prefix
        self._shards = shards

    def by_author(self, pubkey: str) -> str:
        return f"{self._prefix}a#{self._space.author_list(pubkey)}"

    def by_author_and_kind(self, pubkey: str, kind: int) -> str:
        return f"{self._prefix}b#{self._space.author_list(pubkey)}#{kind}"

    def by_kind(self, kind: int) -> list[str]:
        return [self._of_kind(kind, shard) for shard in range(self._shards)]

    def _of_kind(self, kind: int, shard: int) -> str:
        return f"{self._prefix}k#{kind}#{shard}"

    def by_tag(self, key: str, value: str) -> str:
        return f"{self._prefix}t#{key}#{short_value(value)}"

    def everything(self) -> list[str]:
        return [self._of_all(shard) for shard in range(self._shards)]

    def _of_all(self, shard: int) -> str:
        return f"{self._prefix}z#{shard}"

    def of(self, event: Storable) -> list[str]:
        """Every list that the event enters, each once."""
        shard = int(event.id[:8], 16) % self._shards if self._shards > 1 else 0
        kind, author = event.kind, self._space.author_list(event.pubkey)
        prefix = self._prefix
        lists = [
            f"{prefix}a#{author}",
            f"{prefix}b#{author}#{kind}",
            self._of_kind(kind, shard),
            self._of_all(shard),
        ]
        tags = [self.by_tag(key, value) for key, value in event.indexed_tags()]
        return lists + list(dict.fromkeys(tags)) if tags else lists

    def postings(self, event: Storable, written: int, expires: int | None) -> list[Put]:
        item: Item = {"k": event.kind, "p": event.pubkey, "w": written}
        if expires is not None:
            item = {**item, EXPIRES: expires}
        sk = sort_key(event.created_at, event.id)
        return [Put(Table.POSTINGS, pk, sk, item) for pk in self.of(event)]

    def keys(self, event: Storable) -> list[tuple[str, str]]:
        sk = sort_key(event.created_at, event.id)
        return [(pk, sk) for pk in self.of(event)]
