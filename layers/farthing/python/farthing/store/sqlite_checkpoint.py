"""Copying what was committed from the write-ahead log to the database file, in a thread of its own.

SQLite would copy in the thread whose commit fills the log, and all writers would wait for the disk.
Here another thread copies the pages while commits go on. It repeats this for the pages that came
meanwhile, until few are left. The next commit copies those few. The whole log is then copied, and
starts again at its beginning. When no commit has come for a while, the thread copies the rest
and gives the log's space back.
"""

import logging
import sqlite3
import threading
from pathlib import Path

log = logging.getLogger("farthing")

# The log is copied after this many written rows, each of which adds about one page to the log. A
# page that changes often is copied less often than it changes.
_FULL = 16_000
# The number of pages that a commit may copy: that takes no longer than the commit itself.
_FEW = 500
# With this many pages, a commit copies the whole log: the thread could not do it.
_OVERFULL = 8 * _FULL
# A log of fewer rows keeps its space.
_SMALL = 2_000
_QUIET_SECONDS = 1.0


class Checkpoints:
    """For one file with one writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = 0  # since the log began
        self._commits = 0
        self._is_large = False  # the log, since it was last cut off
        self._wanted = threading.Event()  # something for the thread to do
        self._left_to_commit = False
        self._thread: threading.Thread | None = None
        self._closing = False

    def after_commit(self, writer: sqlite3.Connection, rows: int) -> None:
        """Called by the writer after each of its commits."""
        self._rows += rows
        self._commits += 1
        if self._left_to_commit or self._rows > _OVERFULL:
            self._left_to_commit = False
            self._rows = copy_log(writer)
        elif (self._rows > _FULL or self._has_become_large) and not self._wanted.is_set():
            self._is_large = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
                self._thread.start()
            self._wanted.set()

    @property
    def _has_become_large(self) -> bool:
        return not self._is_large and self._rows > _SMALL

    def _run(self) -> None:
        # Without a time-out: a checkpoint that waits for a reader would keep commits waiting.
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        try:
            # Asked after `clear`, which may clear what `close` has set.
            while not self._closing:
                before = self._commits
                if self._wanted.wait(_QUIET_SECONDS if self._is_large else None):
                    if self._rows > _FULL:
                        self._copy(connection)
                    self._wanted.clear()
                elif before == self._commits and cut_off_log(connection):
                    self._is_large, self._rows = False, 0
        except sqlite3.Error:
            log.exception("the log could not be copied, commits will copy it")
        finally:
            connection.close()

    def _copy(self, connection: sqlite3.Connection) -> None:
        before = None
        while not self._closing:
            left = copy_log(connection)
            if left <= _FEW:
                self._left_to_commit = True
                return
            if left == before:  # a reader blocks the copying: try later
                return
            before = left

    def close(self) -> None:
        self._closing = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()


def copy_log(connection: sqlite3.Connection) -> int:
    """Copy the pages that can be copied without a wait. Returns the number of pages that are
    left."""
    _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    left: int = pages - copied
    return max(0, left)


def cut_off_log(connection: sqlite3.Connection) -> bool:
    """Copy all of the log and give its space back, unless a reader or writer is in the way."""
    try:
        if copy_log(connection):
            return False
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError:  # locked
        return False
    return not busy
