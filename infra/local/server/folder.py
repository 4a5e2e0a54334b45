"""The data folder: created if it is missing, and locked by one server at a time."""

import fcntl
from pathlib import Path
from typing import IO

from farthing.store.private_files import private_file, private_folder


class CannotStart(Exception):
    """The server cannot run here; the message says why."""


def hold_folder(path: Path) -> IO[str]:
    """A lock on the folder. It lasts until it is closed or the process ends, even by a crash."""
    try:
        private_folder(path)
        private_file(path / "lock")
        lock = (path / "lock").open("w")
    except OSError as error:
        raise CannotStart(f"cannot use the data folder: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise CannotStart(f"another Farthing is running on {path}") from error
    return lock
