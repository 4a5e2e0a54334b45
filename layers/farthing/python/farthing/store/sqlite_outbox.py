"""Changes of streamed tables. The changes of recent commits are kept in memory for the consumers of
the stream. The outbox in the file is read after a crash, and for changes of other processes."""

import threading
from collections import deque
from itertools import islice
from typing import NamedTuple

from farthing.store.table import Item, Table

# The limits of the memory. Older changes are read from the file.
_MOST_CHANGES = 20_000
_MOST_BYTES = 16 * 1024 * 1024


class OutboxChange(NamedTuple):
    """One change of a streamed table, as stored in the outbox."""

    sequence: int
    table: Table
    pk: str
    sk: str
    old: Item | None
    new: Item | None


class RecentChanges:
    """The newest changes that this process has committed, without a gap. Safe for many threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._changes: deque[tuple[OutboxChange, int]] = deque()  # with their encoded bytes
        self._bytes = 0
        self.last = 0  # the number of the newest change; 0 if there was none yet

    def add(self, changes: list[tuple[OutboxChange, int]]) -> None:
        """Add the changes of a durable commit, in their order."""
        with self._mutex:
            kept = self._changes
            if kept and kept[-1][0].sequence + 1 != changes[0][0].sequence:
                self._clear()  # another process has written in between
            kept.extend(changes)
            self.last = changes[-1][0].sequence
            self._bytes += sum(size for _, size in changes)
            while len(kept) > _MOST_CHANGES or self._bytes > _MOST_BYTES:
                self._bytes -= kept.popleft()[1]

    def forget(self, sequence: int) -> None:
        """Drop the changes up to this one: all consumers have handled them."""
        with self._mutex:
            while self._changes and self._changes[0][0].sequence <= sequence:
                self._bytes -= self._changes.popleft()[1]

    def after(self, sequence: int, limit: int) -> list[OutboxChange]:
        """The next changes after this one. None if they must be read from the file."""
        with self._mutex:
            if not self._changes:
                return []
            skipped = sequence + 1 - self._changes[0][0].sequence
            if not 0 <= skipped < len(self._changes):
                return []
            return [change for change, _ in islice(self._changes, skipped, skipped + limit)]

    def _clear(self) -> None:
        self._changes.clear()
        self._bytes = 0
