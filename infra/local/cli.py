"""The `farthing` command."""

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from farthing.nostr.filters import InvalidFilter, parse_filter
from farthing.settings import InvalidSetting, Settings


def run(_arguments: argparse.Namespace, settings: Settings) -> int:
    from infra.local.server import serve

    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        runner.run(serve(settings))
    return 0


def import_events(arguments: argparse.Namespace, settings: Settings) -> int:
    from infra.local.transfer import import_file

    report = import_file(Path(settings.data), arguments.file, progress=not arguments.quiet)
    print(
        f"{report.stored} stored, {report.duplicates} known, {report.superseded} superseded,"
        f" {report.deleted} deleted by their authors, {report.ephemeral} ephemeral,"
        f" {report.invalid} invalid"
    )
    for reason, number in sorted(report.reasons.items()):
        print(f"  {number} {reason}")
    return 0


def export_events(arguments: argparse.Namespace, settings: Settings) -> int:
    from infra.local.transfer import export_file

    filter = parse_filter(json.loads(arguments.filter))
    number = export_file(
        Path(settings.data), arguments.output, filter, progress=not arguments.quiet
    )
    print(f"{number} exported", file=sys.stderr)
    return 0


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # a platform that it does not support
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="farthing", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("run", help="run relay and connector on this machine")
    command.set_defaults(run=run)
    command = commands.add_parser("import", help="store the events of a JSONL file")
    command.add_argument("file", type=Path)
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command.set_defaults(run=import_events)
    command = commands.add_parser("export", help="write stored events as JSONL, newest first")
    command.add_argument("-o", "--output", type=Path, help="file; an existing one is continued")
    command.add_argument("--filter", default="{}", help="a NIP-01 filter, as JSON")
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command.set_defaults(run=export_events)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    given = parser().parse_args(arguments)
    try:
        settings = Settings.from_env(os.environ)
    except InvalidSetting as error:
        print(f"farthing: {error}", file=sys.stderr)
        return 2
    try:
        status: int = given.run(given, settings)
    except (InvalidFilter, OSError, json.JSONDecodeError) as error:
        print(f"farthing: {error}", file=sys.stderr)
        return 1
    return status
