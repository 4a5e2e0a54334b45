"""Files and folders that nobody but their owner can read: events of private kinds, the ledger and
keys are in them."""

import os
from contextlib import suppress
from pathlib import Path

_FILE, _FOLDER = 0o600, 0o700


def private_folder(path: Path) -> None:
    """Make the folder, or close an older one to others."""
    path.mkdir(parents=True, exist_ok=True, mode=_FOLDER)
    _close_to_others(path, _FOLDER)


def private_file(path: Path) -> None:
    """Make an empty file where there is none, or close an older one to others."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _FILE))
    close_file(path)


def close_file(path: Path) -> None:
    """Close a file to others, if it is there."""
    with suppress(FileNotFoundError):
        _close_to_others(path, _FILE)


def _close_to_others(path: Path, mode: int) -> None:
    if path.stat().st_mode & 0o077:
        with suppress(PermissionError):  # another user's, who has let us in
            path.chmod(mode)
