"""`farthing restore`: copy a backup into an empty data folder, and audit the ledger."""

import shutil
import sqlite3
from argparse import ArgumentParser, Namespace
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from farthing.settings import Settings
from farthing.store.private_files import close_file, private_folder
from infra.local.commands.backup import DATABASE, BackupFailed, check_empty, copy_files
from infra.local.commands.backup import ERRORS as ERRORS
from infra.local.commands.bookkeeping import audit


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder that `farthing backup` has made")


def run(arguments: Namespace, settings: Settings) -> int:
    source, data = arguments.folder, Path(settings.data)
    if not (source / DATABASE).exists():
        raise BackupFailed(f"{source} is not a backup: it has no {DATABASE}")
    check_empty(data)
    _check_database(source / DATABASE)
    private_folder(data)
    copy_files(source, data)
    shutil.copyfile(source / DATABASE, data / DATABASE)
    close_file(data / DATABASE)
    print(f"{data} is as it was at the backup. Events and payments since then are missing.")
    return audit(arguments, replace(settings, data=str(data)))


def _check_database(path: Path) -> None:
    """Check, before anything is copied, that the file is an intact database."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise BackupFailed(f"{path} cannot be read: {error}") from None
    if found != "ok":
        raise BackupFailed(f"{path} is damaged: {found}")
