"""The numbered log: every stored event once, in the order of its number.

Entries are packed into chunks, one a commit, and chunks into buckets, so that the writes do not go
to one partition forever. A second list by author serves readers of few authors. The counter moves
in the transaction that writes the entries it counts: numbers have no gaps and never change.

DynamoDB may show one item of a transaction a moment before another. The log is therefore read by
number, and a reader waits for a missing number. In an author's list a gap would not be visible, so
the list is read only up to entries that several later commits follow.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

from farthing.store.spaces import NOSTR, PUBKEY_DIGITS, SPACES, Space
from farthing.store.table import (
    MAX_TRANSACTION,
    Absent,
    Condition,
    Contended,
    Engine,
    Equals,
    Item,
    Key,
    Put,
    Query,
    Row,
    Table,
    TransactionCancelled,
    read_all,
)

BUCKET = 10_000
# Events of one commit in the cloud: the counter and the chunk, and then two items an event, under
# its id and under its author.
MOST_AT_ONCE = (MAX_TRANSACTION - 2) // 2

_COUNTER = "counter"
_LOG = "log#"
_NUMBER = "n"
_ID, _PUBKEY, _KIND = 64, 64, 4  # characters of an entry's parts
_ENTRY = _ID + _PUBKEY + _KIND
_AUTHOR_PAGE = 100
_LOG_PAGE = 50
_ATTEMPTS = 20  # reads of an entry that is counted but not visible yet
# The last entries of the log, at least four full commits: an author's list may not show all of them
# yet.
_UNSETTLED = 4 * MOST_AT_ONCE


class Arrival(NamedTuple):
    """An event that needs a number."""

    id: str
    pubkey: str
    kind: int


class Change(NamedTuple):
    """A numbered event."""

    number: int
    id: str
    pubkey: str
    kind: int


class Numberer(Protocol):
    """Numbers events in the engine's own commits."""

    def number(self, arrivals: Sequence[Arrival], space: Space[Any]) -> int:
        """Number the events that have no number. Returns how many got a number."""
        ...


class CounterMoved(Exception):
    """Another process has numbered events meanwhile; nothing was written."""


class AlreadyNumbered(Exception):
    """Some of the events have their numbers; nothing was written."""

    def __init__(self, ids: frozenset[str]) -> None:
        super().__init__("some events are numbered already")
        self.ids = ids


def _room(last: int) -> int:
    """The number of entries that still fit into the bucket."""
    return BUCKET - last % BUCKET


def _sort_key(number: int) -> str:
    return f"{number:015d}"


class ChangeLog:
    """The log of one space: each has a counter of its own, so that no log has gaps."""

    def __init__(self, engine: Engine, space: Space[Any] = NOSTR) -> None:
        self._engine = engine
        self._space = space
        self._prefix = space.prefix

    @property
    def counter_key(self) -> Key:
        return f"{self._prefix}{_COUNTER}", _COUNTER

    def _log(self, number: int) -> str:
        return f"{self._prefix}{_LOG}{(number - 1) // BUCKET}"

    def chunk_key(self, last: int) -> Key:
        """The key of the chunk behind the number `last`."""
        return self._log(last + 1), _sort_key(last + 1)

    def id_key(self, event_id: str) -> Key:
        """The key of an event's number."""
        return f"{self._prefix}id#{event_id}", _NUMBER

    def _by_author(self, author: str) -> str:
        return f"{self._prefix}by#{self._space.author_list(author)}"

    def counter(self) -> int:
        return self.number_in(self._engine.get(Table.CHANGES, *self.counter_key))

    @staticmethod
    def number_in(counter: Item | None) -> int:
        return 0 if counter is None else int(counter[_NUMBER])

    def last_number(self) -> int:
        """The highest number given, for readers. It includes a commit whose chunk is visible and
        streamed already while its counter is not."""
        last = self.counter()
        while (item := self._engine.get(Table.CHANGES, *self.chunk_key(last))) is not None:
            last += len(item["e"]) // _ENTRY
        return last

    def numbers_of(self, event_ids: Iterable[str]) -> dict[str, int]:
        """The numbers of the events that have one."""
        keys = {self.id_key(event_id): event_id for event_id in event_ids}
        found = self._engine.get_many(Table.CHANGES, keys)
        return {keys[key]: int(item[_NUMBER]) for key, item in found.items()}

    @property
    def most_at_once(self) -> int:
        return MOST_AT_ONCE * self._engine.max_transaction // MAX_TRANSACTION

    def append(self, last: int, arrivals: Sequence[Arrival]) -> int:
        """Number events behind `last`, as many as fit into one commit. Returns how many got a
        number."""
        batch = arrivals[: min(self.most_at_once, _room(last))]
        try:
            self._engine.transact(self._writes(last, batch))
        except TransactionCancelled as cancelled:
            known = {
                arrival.id
                for position, arrival in enumerate(batch)
                if cancelled.failed[2 + 2 * position]
            }
            if known:
                raise AlreadyNumbered(frozenset(known)) from None
            raise CounterMoved from None
        return len(batch)

    def chunks(self, last: int, arrivals: Sequence[Arrival]) -> list[list[Put]]:
        """The writes that number all of the events behind `last`, for each chunk the counter, the
        chunk itself, and the entries of its events."""
        writes = []
        while arrivals:
            most = min(self.most_at_once, _room(last))
            writes.append(self._writes(last, arrivals[:most]))
            last += len(arrivals[:most])
            arrivals = arrivals[most:]
        return writes

    def between(
        self, since: int, last: int, authors: Sequence[str] | None = None
    ) -> Iterator[Change]:
        """Entries above `since`, up to `last`, ascending; with `authors`, only their entries, and
        entries of keys with the same leading digits by which the space lists authors."""
        if authors is None:
            return self._from_log(since, last)
        settled = max(since, last - _UNSETTLED)
        wanted = frozenset(map(self._space.author_list, authors))
        lists = [self._from_author(author, since, settled) for author in sorted(wanted)]
        newest = (
            entry
            for entry in self._from_log(settled, last)
            if self._space.author_list(entry.pubkey) in wanted
        )
        return chain(heapq.merge(*lists), newest if wanted else ())

    def _from_log(self, since: int, last: int) -> Iterator[Change]:
        reached, attempts = since, 0
        while reached < last:
            before = reached
            for entry in self._from_bucket(reached + 1, last):
                if entry.number != reached + 1:
                    break
                yield entry
                reached += 1
            attempts = attempts + 1 if reached == before else 0
            if attempts == _ATTEMPTS:
                raise Contended("the log is being written")

    def _from_bucket(self, first: int, last: int) -> Iterator[Change]:
        """Entries from `first` on, in the bucket that it belongs to."""
        pk = self._log(first)
        # The chunk with the first entry begins at or before that entry.
        floor = self._engine.query(
            Query(Table.CHANGES, pk, high=_sort_key(first), backward=True, limit=1)
        )
        low = floor.rows[0].sk if floor.rows else None
        query = Query(Table.CHANGES, pk, low=low, high=_sort_key(last), limit=_LOG_PAGE)
        for row in read_all(self._engine, query):
            yield from (entry for entry in chunk(row) if first <= entry.number <= last)

    def _from_author(self, author: str, since: int, last: int) -> Iterator[Change]:
        if since >= last:
            return
        query = Query(
            Table.CHANGES, self._by_author(author), _sort_key(since + 1), _sort_key(last),
            limit=_AUTHOR_PAGE,
        )  # fmt: skip
        for row in read_all(self._engine, query):
            pubkey = row.item.get("p", author)
            yield Change(int(row.sk), row.item["i"], pubkey, row.item["k"])

    def _writes(self, last: int, batch: Sequence[Arrival]) -> list[Put]:
        first = last + 1
        unmoved: Condition = Equals(_NUMBER, last) if last else Absent()
        entries = "".join(f"{event.id}{event.pubkey}{event.kind:04x}" for event in batch)
        writes = [
            Put(Table.CHANGES, *self.counter_key, {_NUMBER: last + len(batch)}, unmoved),
            Put(Table.CHANGES, self._log(first), _sort_key(first), {"e": entries}, Absent()),
        ]
        for number, event in enumerate(batch, first):
            writes.append(Put(Table.CHANGES, *self.id_key(event.id), {_NUMBER: number}, Absent()))
            by_author: dict[str, Any] = {"i": event.id, "k": event.kind}
            # The list's key may have only a part of the author's key.
            if self._space.author_digits < PUBKEY_DIGITS:
                by_author["p"] = event.pubkey
            pk = self._by_author(event.pubkey)
            writes.append(Put(Table.CHANGES, pk, _sort_key(number), by_author))
        return writes


def chunk(row: Row) -> Iterator[Change]:
    """The entries of one commit."""
    first, text = int(row.sk), row.item["e"]
    for position in range(len(text) // _ENTRY):
        entry = text[position * _ENTRY : (position + 1) * _ENTRY]
        yield Change(
            first + position,
            entry[:_ID],
            entry[_ID : _ID + _PUBKEY],
            int(entry[_ID + _PUBKEY :], 16),
        )


def log_space_of(pk: str) -> Space[Any] | None:
    """The space whose log a partition of the changes table belongs to; None for any other
    partition."""
    return next((each for each in SPACES if pk.startswith(f"{each.prefix}{_LOG}")), None)
