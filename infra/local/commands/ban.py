"""`farthing ban`: refuse a key or an event, and remove what is stored of it."""

from argparse import ArgumentParser, Namespace

from farthing.nostr.management import InvalidCall
from farthing.relay.manage import ban_event, ban_key
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as BOOKKEEPING
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.terminal import key_or_id

ERRORS = (*BOOKKEEPING, InvalidCall)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", type=key_or_id, help="npub, nprofile, note or nevent; hex is a key")
    parser.add_argument("--event", action="store_true", help="the hex digits are an event's id")
    parser.add_argument("--reason", default="", help="shown in lists, to nobody else")


def run(arguments: Namespace, settings: Settings) -> int:
    what = arguments.what
    with offline_agent(settings) as agent:
        if what.is_event or arguments.event:
            ban_event(agent, what.hex, arguments.reason)
            print(f"event {what.hex} is banned and removed")
        else:
            ban_key(agent, what.hex, arguments.reason)
            print(f"key {what.hex} is banned, and its events are being removed")
    return 0
