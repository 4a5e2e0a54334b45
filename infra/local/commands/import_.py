"""`farthing import`: store the events of a JSONL file."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from farthing.settings import Settings
from infra.local.commands.terminal import plain
from infra.local.commands.transfer import NotImported, import_file

ERRORS = (NotImported,)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="one event a line; - reads stdin")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: Namespace, settings: Settings) -> int:
    source = None if str(arguments.file) == "-" else arguments.file
    report = import_file(settings, source, progress=not arguments.quiet)
    print(
        f"{report.stored} stored, {report.duplicates} known, {report.superseded} superseded,"
        f" {report.deleted} deleted by their authors, {report.ephemeral} ephemeral,"
        f" {report.invalid} invalid"
    )
    for reason, number in sorted(report.reasons.items()):
        print(f"  {number} {plain(reason)}")
    return 1 if report.invalid and not report.events else 0
