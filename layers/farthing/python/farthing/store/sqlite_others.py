"""Notices when other processes write to a SQLite file, for example an import or a command.

The index of the write-ahead log begins with a header that all processes share in memory. One of its
numbers counts the commits that changed something (see "WAL-Index File Format" in SQLite's
documentation). If the number differs from the one after our own last commit, another process has
committed. Checking it is a read of memory. A statement for every check would take longer than most
reads.
"""

import mmap
import sqlite3
import threading
from pathlib import Path
from struct import Struct
from typing import Final

_VERSION: Final = 3007000
_HEADER: Final = Struct("=3I")  # version, unused, number of commits; in the machine's byte order
_COUNT: Final = Struct("=I")
_COUNT_AT: Final = 8
_WRAP: Final = 2**32


class OtherWriters:
    """For one file with one writer in this process. `path` is that of the log's index."""

    def __init__(self, path: Path, writer: sqlite3.Connection) -> None:
        # Stays open: if a process closes any descriptor of a file, it loses all its locks on the
        # file, including SQLite's. The next process to open the database would then take the index
        # for an abandoned one and truncate it while we use it.
        self._file = path.open("rb")
        self._shared = mmap.mmap(self._file.fileno(), _HEADER.size, access=mmap.ACCESS_READ)
        version, _, self._expected = _HEADER.unpack_from(self._shared)
        self.can_tell = version == _VERSION
        self._writer = writer
        self._version = self._version_now()
        self._committing = False
        self._seen = 0
        self._mutex = threading.Lock()

    def _count(self) -> int:
        count: int = _COUNT.unpack_from(self._shared, _COUNT_AT)[0]
        return count

    def _version_now(self) -> int:
        """A number that changes when a connection other than our writer has committed."""
        version: int = self._writer.execute("PRAGMA data_version").fetchone()[0]
        return version

    def seen(self) -> int:
        """A number that has changed if another process has written since it was last asked for."""
        count, expected = self._count(), self._expected
        # Our own commit may be counted already, before `end` was called.
        if count != expected and not (self._committing and count == (expected + 1) % _WRAP):
            with self._mutex:
                if count != self._expected:
                    self._expected = count
                    self._seen += 1
        return self._seen

    def begin(self) -> None:
        """Our writer is about to commit."""
        self._committing = True

    def end(self) -> None:
        """Our writer has committed, or has given up. Others may have committed meanwhile. So the
        count is read before the version, because the version then covers every commit in the
        count."""
        count, version = self._count(), self._version_now()
        with self._mutex:
            if version != self._version:
                self._version = version
                self._seen += 1
            self._expected = count
            self._committing = False

    def close(self) -> None:
        """Call this after the last connection was closed, because of its locks."""
        self._shared.close()
        self._file.close()
