"""`farthing allow`: let a key write for free, and list or end such permissions."""

from argparse import ArgumentParser, Namespace

from farthing.relay.manage import allow_key
from farthing.relay.moderation import rules, unset_rule
from farthing.settings import Settings
from farthing.store.rules import Subject
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import nothing, plain, pubkey


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pubkey", type=pubkey, nargs="?", default="",
        help="npub, nprofile or 64 hex digits; lists the keys if left out",
    )  # fmt: skip
    parser.add_argument("--end", action="store_true", help="the key pays again")
    parser.add_argument("--reason", default="", help="a note for the operator, shown in lists only")


def run(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        allowed = rules(agent).of(Subject.ALLOWED_KEY)
        if not arguments.pubkey:
            if not allowed:
                nothing("no key writes for free but the owner's")
            for key, reason in sorted(allowed.items()):
                print(f"{key}  {plain(reason)}".rstrip())
        elif not arguments.end:
            allow_key(agent, arguments.pubkey, arguments.reason)
            print(f"{arguments.pubkey} writes for free")
        elif arguments.pubkey in allowed:
            unset_rule(agent, Subject.ALLOWED_KEY, arguments.pubkey)
            print(f"{arguments.pubkey} pays again")
        else:
            raise BookkeepingError("there is no rule that lets this key write for free")
    return 0
