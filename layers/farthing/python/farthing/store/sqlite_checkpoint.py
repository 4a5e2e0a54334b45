"""Copying what was committed from the write-ahead log to the database file, in a thread of its own.

SQLite would do so in the thread whose commit fills the log, and everybody would wait for the disk.
Here another thread copies the pages while commits go on. What came meanwhile is copied again, and
again, until little is left. That little is left to the next commit: it then finds all of the log
copied, and the log begins anew.
"""

import logging
import sqlite3
import threading
from pathlib import Path

log = logging.getLogger("farthing")

# Rows written, each of which leaves about a page in the log, from which the log is copied. Pages
# that change often are copied less often than they change.
_FULL = 16_000
# So many pages may be left to a commit: it takes no longer than the commit itself.
_FEW = 500
# From here on a commit does it all: something has kept the thread from it.
_OVERFULL = 8 * _FULL


class Checkpoints:
    """For one file with one writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = 0  # since the log began
        self._wanted = threading.Event()
        self._left_to_commit = False
        self._thread: threading.Thread | None = None
        self._closing = False

    def after_commit(self, writer: sqlite3.Connection, rows: int) -> None:
        """Called by the writer after each of its commits."""
        self._rows += rows
        if self._left_to_commit or self._rows > _OVERFULL:
            self._left_to_commit = False
            self._rows = copy_log(writer)
        elif self._rows > _FULL and not self._wanted.is_set():
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
                self._thread.start()
            self._wanted.set()

    def _run(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            while self._wanted.wait() and not self._closing:
                self._copy(connection)
                self._wanted.clear()
        except sqlite3.Error:
            log.exception("the log is left to be copied by commits")
        finally:
            connection.close()

    def _copy(self, connection: sqlite3.Connection) -> None:
        before = None
        while not self._closing:
            left = copy_log(connection)
            if left <= _FEW:
                self._left_to_commit = True
                return
            if left == before:  # a reader is in the way: later
                return
            before = left

    def close(self) -> None:
        self._closing = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()


def copy_log(connection: sqlite3.Connection) -> int:
    """Copy what can be copied without waiting for anybody. How many pages of the log are left."""
    _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    left: int = pages - copied
    return max(0, left)
