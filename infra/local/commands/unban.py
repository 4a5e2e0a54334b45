"""`farthing unban`: take back the ban of a key or an event. What was removed stays removed."""

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
            raise BookkeepingError("neither a key nor an event of this name is banned")
    print(f"{arguments.what.hex} is banned no longer")
    return 0
