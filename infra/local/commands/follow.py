"""`farthing follow`: follow an agent, which makes it a peer; and how the follow list is written."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence

from farthing.agent.follows import newest
from farthing.agent.identity import publish_own
from farthing.agent.places import is_relay_url
from farthing.context import Agent
from farthing.nostr.kinds import Kind
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import npub, pubkey

Tags = Sequence[Sequence[str]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("pubkey", type=pubkey, help="the agent's public key")
    parser.add_argument("--relay", default="", help="WebSocket URL where the agent is read")


def run(arguments: Namespace, settings: Settings) -> int:
    if arguments.relay and not is_relay_url(arguments.relay):
        raise BookkeepingError("a relay is a plain ws:// or wss:// URL")
    wanted = ["p", arguments.pubkey, *([arguments.relay] if arguments.relay else [])]
    with offline_agent(settings) as agent:
        if arguments.pubkey == agent.settings.pubkey:
            raise BookkeepingError("nobody follows themselves")
        rewrite_follows(agent, lambda tags: [*without(tags, arguments.pubkey), wanted])
    print(f"following {arguments.pubkey}")
    print(f"          {npub(arguments.pubkey)}")
    return 0


def rewrite_follows(agent: Agent, change: Callable[[Tags], Tags]) -> None:
    """Publish the follow list anew; whatever else it says stays as it was."""
    current = newest(agent, agent.settings.pubkey, Kind.FOLLOWS)
    tags, content = ((), "") if current is None else (current.tags, current.content)
    publish_own(agent, Kind.FOLLOWS, change(tags), content)


def without(tags: Tags, pubkey: str) -> list[Sequence[str]]:
    return [tag for tag in tags if list(tag[:2]) != ["p", pubkey]]
