"""`farthing unfollow`: stop following an agent."""

from argparse import ArgumentParser, Namespace

from farthing.agent.follows import followed
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.follow import rewrite_follows, without
from infra.local.commands.terminal import pubkey


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pubkey", type=pubkey, help="the agent's key: npub, nprofile or 64 hex digits"
    )


def run(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        if arguments.pubkey not in followed(agent):
            raise BookkeepingError("this key is not followed")
        rewrite_follows(agent, lambda tags: without(tags, arguments.pubkey))
    print(f"no longer following {arguments.pubkey}")
    return 0
