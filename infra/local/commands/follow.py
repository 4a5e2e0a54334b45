"""`farthing follow`, `unfollow`, `follows` and `upkeep`: whom the agent peers with, and what it
does about it when asked rather than by itself."""

import time
from argparse import Namespace
from collections.abc import Callable, Sequence

from farthing.agent.follows import followed, newest
from farthing.agent.gather import is_relay_url
from farthing.agent.identity import publish_own
from farthing.agent.upkeep import DUTIES, keep_up, say_who_we_are
from farthing.context import Agent
from farthing.nostr.kinds import Kind
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent

Tags = Sequence[Sequence[str]]


def follow(arguments: Namespace, settings: Settings) -> int:
    if arguments.relay and not is_relay_url(arguments.relay):
        raise BookkeepingError("a relay is a plain ws:// or wss:// URL")
    wanted = ["p", arguments.pubkey, *([arguments.relay] if arguments.relay else [])]
    with offline_agent(settings) as agent:
        if arguments.pubkey == agent.settings.pubkey:
            raise BookkeepingError("nobody follows themselves")
        _rewrite(agent, lambda tags: [*_without(tags, arguments.pubkey), wanted])
    print(f"following {arguments.pubkey}")
    return 0


def unfollow(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        if arguments.pubkey not in followed(agent):
            raise BookkeepingError("this key is not followed")
        _rewrite(agent, lambda tags: _without(tags, arguments.pubkey))
    print(f"no longer following {arguments.pubkey}")
    return 0


def list_follows(_arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        for pubkey in followed(agent):
            peer = agent.ledger.peer_by_pubkey(pubkey)
            standing = "no peer" if peer is None else "peer" if peer.active else "proposed"
            print(f"{pubkey}  {standing:<9}  {peer.ilp_address if peer else '-'}")
    return 0


def upkeep(_arguments: Namespace, settings: Settings) -> int:
    started = time.monotonic()
    with offline_agent(settings) as agent:
        # Who we are depends on where the server listens, which only the server knows.
        done = keep_up(agent, [duty for duty in DUTIES if duty is not say_who_we_are])
    for result in done.values():
        print(result)
    print(f"in {time.monotonic() - started:.1f} s")
    return 1 if "failed" in done.values() else 0


def _rewrite(agent: Agent, change: Callable[[Tags], Tags]) -> None:
    """Publish the follow list anew; whatever else it says stays as it was."""
    current = newest(agent, agent.settings.pubkey, Kind.FOLLOWS)
    tags, content = ((), "") if current is None else (current.tags, current.content)
    publish_own(agent, Kind.FOLLOWS, change(tags), content)


def _without(tags: Tags, pubkey: str) -> list[Sequence[str]]:
    return [tag for tag in tags if list(tag[:2]) != ["p", pubkey]]
