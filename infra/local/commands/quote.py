"""`farthing quote`: ask a relay what storing an event costs, without publishing it."""

import json
from argparse import ArgumentParser, Namespace

from farthing.settings import Settings
from infra.local.commands.paying import ERRORS as ERRORS
from infra.local.commands.paying import add_event_arguments, ask_quote, author_secret, signed
from infra.local.commands.relay_address import web_url


def add_arguments(parser: ArgumentParser) -> None:
    add_event_arguments(parser)


def run(arguments: Namespace, settings: Settings) -> int:
    event = signed(arguments, author_secret(arguments, settings))
    print(json.dumps(ask_quote(web_url(arguments, settings), event), indent=2))
    return 0
