"""`farthing backup`: a consistent copy of the data folder, also while the server runs on it.

The copy holds events, ledger and keys: whoever has it has the key and the money.
"""

import os
import shutil
import sqlite3
from argparse import ArgumentParser, Namespace
from pathlib import Path

from farthing.settings import Settings
from farthing.store.private_files import close_file, private_folder

DATABASE = "farthing.db"
# Files of the server that runs, which mean nothing to another one.
_LEFT_OUT = frozenset({DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", "lock"})


class BackupFailed(Exception):
    """There is no backup, or none that can be used; the message says why."""


ERRORS = (BackupFailed, sqlite3.Error)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a folder that is empty, or not there yet")


def run(arguments: Namespace, settings: Settings) -> int:
    data, target = Path(settings.data), arguments.folder
    if not (data / DATABASE).exists():
        raise BackupFailed(f"there is no data in {data}")
    check_empty(target)
    private_folder(target)
    _copy_database(data / DATABASE, target / DATABASE)
    copy_files(data, target)
    print(f"{target}: {_size(target)} bytes. It holds the key: keep it where nobody else reads.")
    return 0


def check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BackupFailed(f"{folder} is not empty")


def _copy_database(source: Path, target: Path) -> None:
    """One moment of the database, while others go on writing. The copy is whole before it has its
    name, so that a backup which was cut short is not taken for one."""
    draft = target.with_suffix(".part")
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as connection:
        connection.execute("VACUUM INTO ?", (str(draft),))
    close_file(draft)
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.rename(target)


def copy_files(source: Path, target: Path) -> None:
    """Everything beside the database: keys, tokens, checkpoints."""
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
