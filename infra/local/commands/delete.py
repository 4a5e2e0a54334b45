"""`farthing delete`: remove stored events. Receipts and numbers stay."""

import json
from argparse import ArgumentParser, Namespace

from farthing.nostr.filters import Filter, parse_filter
from farthing.relay.removal import remove_matching
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import event_id, event_line, filter_json


def add_arguments(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--filter", type=filter_json, help="a NIP-01 filter, as JSON")
    which.add_argument("--id", type=event_id, help="one event: note, nevent or hex")
    parser.add_argument(
        "--dry-run", action="store_true", help="only show the events that would be removed"
    )


def run(arguments: Namespace, settings: Settings) -> int:
    if arguments.id:
        filter = Filter(ids=frozenset({arguments.id}))
    else:
        filter = parse_filter(json.loads(arguments.filter))
        if filter == Filter():
            raise BookkeepingError("this filter matches everything: give a narrower one")
    number = 0
    with offline_agent(settings) as agent:
        for record in remove_matching(agent, filter, dry_run=arguments.dry_run):
            number += 1
            if arguments.dry_run:
                print(event_line(record.event.as_dict()))
    events = "event" if number == 1 else "events"
    print(f"{number} {events} {'would be ' if arguments.dry_run else ''}removed")
    return 0
