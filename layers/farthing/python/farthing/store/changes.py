"""The numbered log: every stored event once, in the order of its number.

Entries are packed into chunks, one a commit, and chunks into buckets, so that no partition takes
all writes for ever. A second list by author serves those who follow few authors. The counter moves
in the transaction that writes the entries it counts: numbers have no gaps and never change.

DynamoDB may show one item of a transaction a moment before another. The log is therefore read by
its numbers, and a reader waits where one is missing; an author's list, where a gap would not show,
is read only as far as later commits stand behind it.
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
    TransactWrite,
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
_ATTEMPTS = 20  # at an entry that is counted and does not show
# Of these, at the log's end, an author's list may not show all yet: four full commits at least.
_UNSETTLED = 4 * MOST_AT_ONCE


class Arrival(NamedTuple):
    """An event to be numbered."""

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
    """Someone who numbers events in the engine's own commits."""

    def number(self, arrivals: Sequence[Arrival], space: Space[Any]) -> int:
        """Number those of the events that have no number. How many those were."""
        ...


class CounterMoved(Exception):
    """Somebody else has numbered events meanwhile; nothing was written."""


class AlreadyNumbered(Exception):
    """Some of the events have their numbers; nothing was written."""

    def __init__(self, ids: frozenset[str]) -> None:
        super().__init__("some events are numbered already")
        self.ids = ids


def _room(last: int) -> int:
    """How many more entries the bucket takes."""
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

    def id_key(self, event_id: str) -> Key:
        """Where an event's number stands."""
        return f"{self._prefix}id#{event_id}", _NUMBER

    def _by_author(self, author: str) -> str:
        return f"{self._prefix}by#{self._space.author_list(author)}"

    def counter(self) -> int:
        return self.number_in(self._engine.get(Table.CHANGES, *self.counter_key))

    @staticmethod
    def number_in(counter: Item | None) -> int:
        return 0 if counter is None else int(counter[_NUMBER])

    def last_number(self) -> int:
        """The highest number given, for readers: also by a commit whose chunk shows already, and
        has been streamed, while the counter does not."""
        last = self.counter()
        while (
            item := self._engine.get(Table.CHANGES, self._log(last + 1), _sort_key(last + 1))
        ) is not None:
            last += len(item["e"]) // _ENTRY
        return last

    def number_of(self, event_id: str) -> int | None:
        item = self._engine.get(Table.CHANGES, *self.id_key(event_id))
        return None if item is None else int(item[_NUMBER])

    def numbers_of(self, event_ids: Iterable[str]) -> dict[str, int]:
        """The numbers of those that have one."""
        keys = {self.id_key(event_id): event_id for event_id in event_ids}
        found = self._engine.get_many(Table.CHANGES, keys)
        return {keys[key]: int(item[_NUMBER]) for key, item in found.items()}

    @property
    def most_at_once(self) -> int:
        return MOST_AT_ONCE * self._engine.max_transaction // MAX_TRANSACTION

    def append(self, last: int, arrivals: Sequence[Arrival]) -> int:
        """Number events behind `last`, as many as fit into one commit. How many those were."""
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

    def chunks(self, last: int, arrivals: Sequence[Arrival]) -> list[list[TransactWrite]]:
        """The writes that number all of the events behind `last`: a transaction a bucket."""
        writes = []
        while arrivals:
            batch, arrivals = arrivals[: _room(last)], arrivals[_room(last) :]
            writes.append(self._writes(last, batch))
            last += len(batch)
        return writes

    def between(
        self, since: int, last: int, authors: Sequence[str] | None = None
    ) -> Iterator[Change]:
        """Entries above `since`, up to `last`, ascending; with `authors`, only theirs, and those of
        keys that begin alike as far as the space lists authors by."""
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
        # The chunk that holds the first one begins at or before it.
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

    def _writes(self, last: int, batch: Sequence[Arrival]) -> list[TransactWrite]:
        first = last + 1
        unmoved: Condition = Equals(_NUMBER, last) if last else Absent()
        entries = "".join(f"{event.id}{event.pubkey}{event.kind:04x}" for event in batch)
        writes: list[TransactWrite] = [
            Put(Table.CHANGES, *self.counter_key, {_NUMBER: last + len(batch)}, unmoved),
            Put(Table.CHANGES, self._log(first), _sort_key(first), {"e": entries}, Absent()),
        ]
        for number, event in enumerate(batch, first):
            writes.append(Put(Table.CHANGES, *self.id_key(event.id), {_NUMBER: number}, Absent()))
            by_author: dict[str, Any] = {"i": event.id, "k": event.kind}
            if self._space.author_digits < PUBKEY_DIGITS:  # the list does not say whose it is
                by_author["p"] = event.pubkey
            pk = self._by_author(event.pubkey)
            writes.append(Put(Table.CHANGES, pk, _sort_key(number), by_author))
        return writes


def chunk(row: Row) -> Iterator[Change]:
    """The entries that one commit has added."""
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
    """The space whose log a partition of the changes table belongs to; None if to no log."""
    return next((each for each in SPACES if pk.startswith(f"{each.prefix}{_LOG}")), None)
