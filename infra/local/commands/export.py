"""`farthing export`: write stored events as JSON lines, newest first."""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from farthing.aether.filters import InvalidFilter
from farthing.aether.filters import parse_filter as parse_aether_filter
from farthing.nostr.filters import parse_filter
from farthing.settings import Settings
from farthing.store.spaces import AETHER, NOSTR
from infra.local.commands.terminal import filter_json
from infra.local.commands.transfer import NotExported, export_file

ERRORS = (NotExported, InvalidFilter)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=_file,
        help="file, an existing one is continued; stdout if left out, or with -",
    )  # fmt: skip
    parser.add_argument("--filter", default="{}", type=filter_json, help="a NIP-01 filter, as JSON")
    parser.add_argument(
        "--aether",
        action="store_true",
        help="export Aether events; --filter is then an Aether filter",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _file(text: str) -> Path | None:
    return None if text == "-" else Path(text)


def run(arguments: Namespace, settings: Settings) -> int:
    wanted = json.loads(arguments.filter)
    number = export_file(
        Path(settings.data),
        arguments.output,
        parse_aether_filter(wanted) if arguments.aether else parse_filter(wanted),
        progress=not arguments.quiet,
        space=AETHER if arguments.aether else NOSTR,
    )
    print(f"{number} exported", file=sys.stderr)
    return 0
