"""`farthing restore`: a backup into an empty data folder, checked by an audit."""

import shutil
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from farthing.settings import Settings
from farthing.store.private_files import close_file, private_folder
from infra.local.commands.backup import DATABASE, BackupFailed, check_empty, copy_files
from infra.local.commands.backup import ERRORS as ERRORS
from infra.local.commands.bookkeeping import audit


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="what `farthing backup` has made")


def run(arguments: Namespace, settings: Settings) -> int:
    source, data = arguments.folder, Path(settings.data)
    if not (source / DATABASE).exists():
        raise BackupFailed(f"{source} is not a backup: it has no {DATABASE}")
    check_empty(data)
    private_folder(data)
    copy_files(source, data)
    shutil.copyfile(source / DATABASE, data / DATABASE)
    close_file(data / DATABASE)
    print(f"{data} is as it was at the backup. What was stored since is not in it.")
    return audit(arguments, replace(settings, data=str(data)))
