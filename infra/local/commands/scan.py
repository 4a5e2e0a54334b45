"""`farthing scan`: print stored events that match a filter, newest first."""

import json
from argparse import ArgumentParser, Namespace

from farthing.nostr.filters import parse_filter
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.terminal import event_line, filter_json, whole_number


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--filter", default="{}", type=filter_json, help="a NIP-01 filter, as JSON")
    parser.add_argument(
        "--limit",
        type=whole_number,
        default=100,
        help="number of events at most, 0 for all; %(default)s if left out",
    )
    parser.add_argument("--count", action="store_true", help="print only their number")
    parser.add_argument("--json", action="store_true", help="print whole events, one per line")


def run(arguments: Namespace, settings: Settings) -> int:
    filter = parse_filter(json.loads(arguments.filter))
    number = 0
    with offline_agent(settings) as agent:
        for record in agent.reader.find(filter):
            if not arguments.count:
                print(record.json if arguments.json else event_line(record.event.as_dict()))
            number += 1
            if number == arguments.limit and not arguments.count:
                break
    if arguments.count:
        print(number)
    return 0
