"""`farthing follow`: follow an agent, which makes it a peer. Also writes the follow list for
`farthing unfollow`."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence

from farthing.agent.follows import newest
from farthing.agent.identity import publish_own
from farthing.agent.places import hints, is_relay_url, relays_to_read
from farthing.context import Agent
from farthing.nostr.kinds import Kind
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import npub, plain, pubkey

Tags = Sequence[Sequence[str]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pubkey", type=pubkey, help="the agent's key: npub, nprofile or 64 hex digits"
    )
    parser.add_argument(
        "--relay", default="", help="WebSocket URL of the relay where the agent publishes"
    )


def run(arguments: Namespace, settings: Settings) -> int:
    if arguments.relay and not is_relay_url(arguments.relay):
        raise BookkeepingError(f"expected a ws:// or wss:// URL as relay, got {arguments.relay!r}")
    key = arguments.pubkey
    with offline_agent(settings) as agent:
        if key == agent.settings.pubkey:
            raise BookkeepingError("this is your own key: you cannot follow it")
        rewrite_follows(agent, lambda tags: [*without(tags, key), _tag(tags, key, arguments.relay)])
        relays = relays_to_read(agent, key, hints(agent).get(key, ""))
    print(f"following {key}")
    print(f"          {npub(key)}")
    print(f"read at   {plain(', '.join(relays)) or 'no relay that is known yet: add --relay URL'}")
    return 0


def _tag(tags: Tags, pubkey: str, relay: str) -> Sequence[str]:
    """The tag of a key. The relay and the name that the list has already stay."""
    known = next((tag for tag in tags if list(tag[:2]) == ["p", pubkey]), ())
    rest = [relay or next(iter(known[2:3]), ""), *known[3:]]
    return ["p", pubkey, *(rest if any(rest) else [])]


def rewrite_follows(agent: Agent, change: Callable[[Tags], Tags]) -> None:
    """Publish the follow list with changed tags. The content stays as it was."""
    current = newest(agent, agent.settings.pubkey, Kind.FOLLOWS)
    tags, content = ((), "") if current is None else (current.tags, current.content)
    publish_own(agent, Kind.FOLLOWS, change(tags), content)


def without(tags: Tags, pubkey: str) -> list[Sequence[str]]:
    return [tag for tag in tags if list(tag[:2]) != ["p", pubkey]]
