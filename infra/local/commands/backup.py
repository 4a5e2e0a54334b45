"""`farthing backup`: a consistent copy of the data folder, also while the server runs on it.

The copy holds events, ledger and keys. Anybody who has the copy can use the key and the money.
"""

import os
import shutil
import sqlite3
from argparse import ArgumentParser, Namespace
from pathlib import Path

from farthing.settings import Settings
from farthing.store.private_files import close_file, private_folder

DATABASE = "farthing.db"
# Files that only the running server needs. The search index would change while it is copied; a
# server builds it again.
_LEFT_OUT = frozenset(
    {"lock", *(f"{name}{end}" for name in (DATABASE, "search.db") for end in ("", "-wal", "-shm"))}
)


class BackupFailed(Exception):
    """The backup is missing, or cannot be made or used; the message says why."""


ERRORS = (BackupFailed, sqlite3.Error)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a folder that is empty or does not exist yet")


def run(arguments: Namespace, settings: Settings) -> int:
    data, target = Path(settings.data), arguments.folder
    if not (data / DATABASE).exists():
        raise BackupFailed(f"there is no data in {data}")
    if target.resolve().is_relative_to(data.resolve()):
        raise BackupFailed(f"{target} is in the data folder: give a place elsewhere")
    check_empty(target)
    private_folder(target)
    _copy_database(data / DATABASE, target / DATABASE)
    copy_files(data, target)
    print(f"{target}: {_size(target)} bytes. The copy holds the key: keep it private.")
    return 0


def check_empty(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise BackupFailed(f"{folder} is not a folder")
    if folder.exists() and any(folder.iterdir()):
        raise BackupFailed(f"{folder} is not empty")


def _copy_database(source: Path, target: Path) -> None:
    """Copy one moment of the database, while other processes continue to write. The copy gets its
    name when it is complete, so that an interrupted backup is not taken for a complete one."""
    draft = target.with_suffix(".part")
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as connection:
        connection.execute("VACUUM INTO ?", (str(draft),))
    close_file(draft)
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.rename(target)


def copy_files(source: Path, target: Path) -> None:
    """Copy everything except the database: keys, tokens, checkpoints."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.name in _LEFT_OUT or path.is_symlink():
            continue
        if path.is_dir():
            private_folder(place)
        elif path.is_file():
            shutil.copyfile(path, place)
            close_file(place)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
