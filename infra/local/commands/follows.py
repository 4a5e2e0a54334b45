"""`farthing follows`: the keys that are followed, and which of them are peers."""

from argparse import ArgumentParser, Namespace

from farthing.agent.follows import followed
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.terminal import nothing


def add_arguments(parser: ArgumentParser) -> None:
    """The command has no arguments."""


def run(_arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        keys = followed(agent)
        if not keys:
            nothing("the follow list is empty: add a key with `farthing follow NPUB`")
        for pubkey in keys:
            peer = agent.ledger.peer_by_pubkey(pubkey)
            standing = "no peer" if peer is None else "peer" if peer.active else "proposed"
            print(f"{pubkey}  {standing:<9}  {peer.ilp_address if peer else '-'}")
    return 0
