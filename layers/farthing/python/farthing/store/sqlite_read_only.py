"""The table port on a SQLite file that another process writes. It changes nothing in the file, not
even the layout of an older one."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from farthing.store import sqlite_rows
from farthing.store.answers import PassedEvent
from farthing.store.sqlite_layout import LAYOUT, layout_of
from farthing.store.sqlite_newest import newest_events
from farthing.store.sqlite_reads import SqliteReads, packed_range
from farthing.store.table import (
    BatchWrite,
    Item,
    Query,
    StoreError,
    Table,
    TransactWrite,
    Write,
)

_CACHE_KIB = 8 * 1024


class OnlyReads(StoreError):
    """A write to an engine that only reads."""

    def __init__(self) -> None:
        super().__init__("this process does not write")


class _File:
    """The file, read by one thread."""

    def __init__(self, path: Path) -> None:
        # The writer is running, so the log and its index exist.
        self.reader = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        self.reader.isolation_level = None
        self.reader.execute("PRAGMA busy_timeout = 10000")
        self.reader.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self.has_plain_postings = True  # until it was looked up

    def look_for_plain_postings(self) -> None:
        self.has_plain_postings = sqlite_rows.has_plain(self.reader, Table.POSTINGS)


class ReadOnlyEngine(SqliteReads):
    """See `table.Engine`. `path` is that of the file."""

    max_transaction = 0

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file: _File = _File(path)
        self._clock = clock
        layout = layout_of(self._file.reader)
        if layout != LAYOUT:
            self.close()
            raise StoreError(f"expected a file of layout {LAYOUT}, got layout {layout}")

    def close(self) -> None:
        self._file.reader.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with super().snapshot():
            self._file.look_for_plain_postings()  # the writer may have stored the first
            yield

    def get(self, table: Table, pk: str, sk: str) -> Item | None:
        return self.get_many(table, [(pk, sk)]).get((pk, sk))

    def newest_events(self, query: Query, most_octets: int) -> list[PassedEvent] | None:
        """The events of a query of postings with a limit; None if they have to be read one by one,
        or have more octets together."""
        if self._file.has_plain_postings or query.limit is None:
            return None
        pk, low, high, _ = packed_range(query)
        now = int(self._clock())
        within = pk, low, high
        return newest_events(self._file.reader, within, now, query.limit, most_octets)

    def write(self, write: Write) -> Item | None:
        raise OnlyReads

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        raise OnlyReads

    def transact(self, writes: Sequence[TransactWrite]) -> None:
        raise OnlyReads
