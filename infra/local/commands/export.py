"""`farthing export`: write stored events as JSON lines, newest first."""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from farthing.nostr.filters import parse_filter
from farthing.settings import Settings
from infra.local.commands.terminal import filter_json
from infra.local.commands.transfer import NotExported, export_file

ERRORS = (NotExported,)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, help="file; an existing one is continued")
    parser.add_argument("--filter", default="{}", type=filter_json, help="a NIP-01 filter, as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: Namespace, settings: Settings) -> int:
    filter = parse_filter(json.loads(arguments.filter))
    number = export_file(
        Path(settings.data), arguments.output, filter, progress=not arguments.quiet
    )
    print(f"{number} exported", file=sys.stderr)
    return 0
