"""Files and folders that only their owner can read. They contain private events, the ledger and
keys."""

import os
from contextlib import suppress
from pathlib import Path

_FILE, _FOLDER = 0o600, 0o700


def private_folder(path: Path) -> None:
    """Make the folder, or remove other users' access to an existing one."""
    path.mkdir(parents=True, exist_ok=True, mode=_FOLDER)
    _close_to_others(path, _FOLDER)


def private_file(path: Path) -> None:
    """Make an empty file, or remove other users' access to an existing one."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _FILE))
    close_file(path)


def close_file(path: Path) -> None:
    """Remove other users' access to a file, if it exists."""
    with suppress(FileNotFoundError):
        _close_to_others(path, _FILE)


def _close_to_others(path: Path, mode: int) -> None:
    if path.stat().st_mode & 0o077:
        with suppress(PermissionError):  # the file belongs to another user, who has given us access
            path.chmod(mode)
