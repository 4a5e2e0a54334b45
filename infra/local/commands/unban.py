"""`farthing unban`: lift the ban of a key or an event. Removed events stay removed."""

from argparse import ArgumentParser, Namespace

from farthing.relay.manage import unban
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import key_or_id


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", type=key_or_id, help="npub, nprofile, note, nevent or hex")


def run(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        if not unban(agent, arguments.what.hex):
            raise BookkeepingError(f"no key or event {arguments.what.hex} is banned")
    print(f"{arguments.what.hex} is no longer banned")
    return 0
