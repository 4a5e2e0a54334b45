"""The numbered log: every stored event once, in the order of its number.

Entries are packed into chunks, one a commit, and chunks into buckets, so that no partition takes
all writes for ever. A second list by author serves those who follow few authors. The counter moves
in the transaction that writes the entries it counts: numbers have no gaps and never change, and who
has read the counter finds every entry up to it.
"""

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from farthing.store.table import (
    MAX_TRANSACTION,
    Absent,
    Condition,
    Engine,
    Equals,
    Put,
    Query,
    Row,
    Table,
    TransactionCancelled,
    TransactWrite,
    read_all,
)

BUCKET = 10_000
# The counter and the chunk, and then two items an event: under its id, and under its author.
MOST_AT_ONCE = (MAX_TRANSACTION - 2) // 2

_COUNTER = ("counter", "counter")
_NUMBER = "n"
_ID, _PUBKEY, _KIND = 64, 64, 4  # characters of an entry's parts
_ENTRY = _ID + _PUBKEY + _KIND
_AUTHOR_PAGE = 100


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


class CounterMoved(Exception):
    """Somebody else has numbered events meanwhile; nothing was written."""


class AlreadyNumbered(Exception):
    """Some of the events have their numbers; nothing was written."""

    def __init__(self, ids: frozenset[str]) -> None:
        super().__init__("some events are numbered already")
        self.ids = ids


def _log(number: int) -> str:
    return f"log#{(number - 1) // BUCKET}"


def _sort_key(number: int) -> str:
    return f"{number:015d}"


class ChangeLog:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def last_number(self) -> int:
        item = self._engine.get(Table.CHANGES, *_COUNTER)
        return 0 if item is None else int(item[_NUMBER])

    def number_of(self, event_id: str) -> int | None:
        item = self._engine.get(Table.CHANGES, f"id#{event_id}", _NUMBER)
        return None if item is None else int(item[_NUMBER])

    def append(self, last: int, arrivals: Sequence[Arrival]) -> int:
        """Number events behind `last`, as many as fit into one commit. How many those were."""
        room = BUCKET - last % BUCKET
        batch = arrivals[: min(MOST_AT_ONCE, room)]
        try:
            self._engine.transact(_writes(last, batch))
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

    def between(
        self, since: int, last: int, authors: Sequence[str] | None = None
    ) -> Iterator[Change]:
        """Entries above `since`, up to `last`, ascending; with `authors`, only theirs."""
        if since >= last:
            return iter(())
        if authors is None:
            return self._from_log(since, last)
        lists = [self._from_author(author, since, last) for author in authors]
        return heapq.merge(*lists)

    def _from_log(self, since: int, last: int) -> Iterator[Change]:
        number = since + 1
        while number <= last:
            pk = _log(number)
            # The chunk that holds the number begins at or before it.
            floor = self._engine.query(
                Query(Table.CHANGES, pk, high=_sort_key(number), backward=True, limit=1)
            )
            low = floor.rows[0].sk if floor.rows else None
            query = Query(Table.CHANGES, pk, low=low, high=_sort_key(last), limit=50)
            for row in read_all(self._engine, query):
                yield from (change for change in chunk(row) if since < change.number <= last)
            number = ((number - 1) // BUCKET + 1) * BUCKET + 1

    def _from_author(self, author: str, since: int, last: int) -> Iterator[Change]:
        query = Query(
            Table.CHANGES, f"by#{author}", _sort_key(since + 1), _sort_key(last),
            limit=_AUTHOR_PAGE,
        )  # fmt: skip
        for row in read_all(self._engine, query):
            yield Change(int(row.sk), row.item["i"], author, row.item["k"])


def _writes(last: int, batch: Sequence[Arrival]) -> list[TransactWrite]:
    first = last + 1
    unmoved: Condition = Equals(_NUMBER, last) if last else Absent()
    entries = "".join(f"{event.id}{event.pubkey}{event.kind:04x}" for event in batch)
    writes: list[TransactWrite] = [
        Put(Table.CHANGES, *_COUNTER, {_NUMBER: last + len(batch)}, unmoved),
        Put(Table.CHANGES, _log(first), _sort_key(first), {"e": entries}, Absent()),
    ]
    for number, event in enumerate(batch, first):
        writes.append(Put(Table.CHANGES, f"id#{event.id}", _NUMBER, {_NUMBER: number}, Absent()))
        by_author = {"i": event.id, "k": event.kind}
        writes.append(Put(Table.CHANGES, f"by#{event.pubkey}", _sort_key(number), by_author))
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
