"""Reading a SQLite file: items by their keys, and ranges of partitions. Shared by the engine that
also writes (see `sqlite`) and by processes that only read (see `sqlite_read_only`)."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from farthing.store import sqlite_rows
from farthing.store.limits import check_key, check_query
from farthing.store.sqlite_items import decode_items
from farthing.store.sqlite_packing import (
    ABOVE_ALL,
    PACKED,
    Part,
    list_digest,
    pack_bound,
    pack_partition,
    unpack_item,
)
from farthing.store.sqlite_postings import posting_rows
from farthing.store.sqlite_rows import Span, SpanKind
from farthing.store.table import Item, Key, Page, Query, Row, Table

# As many rows as fit into the processor's cache: with more, reading takes half as long again.
_LARGEST_PAGE = 1000
# A statement for many queries takes longer to start.
_FEW_QUERIES = 3
# The bounds of an unlimited range. In SQLite every blob is above every text.
_LOWEST, _HIGHEST = "", b""


class _Range(NamedTuple):
    """A query's range in the stored form of the keys, in their order."""

    pk: Part
    low: Part
    high: Part
    after: Part | None


def _range(query: Query) -> _Range:
    """The range of rows whose sort keys are text."""
    pk = query.pk if query.table is Table.POSTINGS else pack_partition(query.table, query.pk)
    low = _LOWEST if query.low is None else query.low
    high = _HIGHEST if query.high is None else query.high
    return _Range(pk, low, high, query.after)


def packed_range(query: Query) -> _Range:
    """The range of packed postings."""
    low = b"" if query.low is None else pack_bound(query.low)
    high = ABOVE_ALL if query.high is None else pack_bound(query.high)
    after = None if query.after is None else pack_bound(query.after)
    return _Range(list_digest(query.pk), low, high, after)


def _span(query: Query, within: _Range | None = None) -> tuple[Span, bool]:
    """A query's range, in the direction of reading, and whether its start is left out.

    It has one start: given two, SQLite may begin at the farther one, and a page would take longer
    the more pages were read before it."""
    if within is None:
        within = (packed_range if query.table is Table.POSTINGS else _range)(query)
    pk, low, high, after = within
    first, last = (high, low) if query.backward else (low, high)
    unbound = (query.high if query.backward else query.low) is None
    if after is not None and (unbound or (after <= first if query.backward else after >= first)):  # type: ignore[operator]
        return Span(pk, after, last), True
    return Span(pk, first, last), False


def _sort_key(stored: Part) -> str:
    return stored.hex() if isinstance(stored, bytes) else stored


def _rows(query: Query, found: list[tuple[Part, bytes]]) -> Sequence[Row]:
    sort_keys = [_sort_key(sk) for sk, _ in found]
    encoded = [item for _, item in found]
    if query.table is Table.POSTINGS:
        return posting_rows(sort_keys, encoded)
    if query.table in PACKED:
        items = [unpack_item(query.pk, each) for each in encoded]
    else:
        items = decode_items(encoded)
    return list(map(sqlite_rows.new_row, zip(sort_keys, items, strict=True)))


class ReadFile(Protocol):
    @property
    def reader(self) -> sqlite3.Connection:
        """The calling thread's connection."""
        ...

    @property
    def has_plain_postings(self) -> bool:
        """Whether there may be postings that are not packed."""
        ...


class SqliteReads:
    """The reading part of an engine. Subclasses set `_file` and `_clock`."""

    # One shard: on one machine, more shards would gain nothing.
    shards = 1

    _file: ReadFile
    _clock: Callable[[], float]

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]:
        wanted = list(dict.fromkeys(keys))
        for key in wanted:
            check_key(*key)
        return sqlite_rows.get(self._file.reader, table, wanted, int(self._clock()))

    def query(self, query: Query) -> Page:
        check_query(query)
        most = None if query.limit is None else min(query.limit, _LARGEST_PAGE)
        # One row more tells whether the range goes on.
        limit = -1 if most is None else most + 1
        if query.table is not Table.POSTINGS:
            found = self._read(query, _range(query), limit)
        else:
            found = self._read(query, packed_range(query), limit)
            if self._file.has_plain_postings:
                found += self._read(query, _range(query), limit)
                found.sort(reverse=query.backward, key=lambda row: _sort_key(row[0]))
        after = None
        if most is not None and len(found) > most:
            del found[most:]
            after = _sort_key(found[-1][0])
        return Page(_rows(query, found), after)

    def _read(self, query: Query, within: _Range, limit: int) -> list[tuple[Part, bytes]]:
        """The sort keys and the items in their stored form."""
        (pk, first, last), behind = _span(query, within)
        start, end, order = ("<", ">=", "DESC") if query.backward else (">", "<=", "ASC")
        return self._file.reader.execute(
            f"SELECT sk, item FROM {query.table} WHERE pk = ?"
            f" AND sk {start}{'' if behind else '='} ? AND sk {end} ?"
            f" AND (expires IS NULL OR expires > ?) ORDER BY sk {order} LIMIT ?",
            (pk, first, last, int(self._clock()), limit),
        ).fetchall()

    def query_many(self, queries: Sequence[Query]) -> list[Page]:
        """Answer all queries of one kind with one statement."""
        if len(queries) < _FEW_QUERIES or self._file.has_plain_postings:
            return [self.query(query) for query in queries]
        alike: dict[tuple[SpanKind, int | None], list[tuple[int, Span]]] = {}
        for number, query in enumerate(queries):
            check_query(query)
            span, behind = _span(query)
            kind = SpanKind(query.table, query.backward, behind)
            alike.setdefault((kind, query.limit), []).append((number, span))
        pages: dict[int, Page] = {}
        for (kind, limit), some in alike.items():
            names = [queries[number].pk for number, _ in some]
            read = self._pages(kind, names, [span for _, span in some], limit)
            pages.update(zip((number for number, _ in some), read, strict=True))
        return [pages[number] for number in range(len(queries))]

    def _pages(
        self, kind: SpanKind, names: list[str], spans: list[Span], limit: int | None
    ) -> Iterator[Page]:
        most = None if limit is None else min(limit, _LARGEST_PAGE)
        # One row more tells whether the range goes on.
        at_most = -1 if most is None else most + 1
        now = int(self._clock())
        for rows in sqlite_rows.spans(self._file.reader, kind, names, spans, now, at_most):
            after = None
            if most is not None and len(rows) > most:
                del rows[most:]
                after = rows[-1].sk
            yield Page(rows, after)

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        return [call() for call in calls]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Inside, this thread reads the state of this moment, whatever others write."""
        reader = self._file.reader
        reader.execute("BEGIN")
        try:
            reader.execute("SELECT 1 FROM consumers LIMIT 1").fetchone()  # from here on
            yield
        finally:
            reader.execute("COMMIT")
