"""`farthing ban`: ban a key or an event, and remove the stored events; list the bans."""

from argparse import ArgumentParser, Namespace

from farthing.nostr.management import InvalidCall
from farthing.relay.manage import ban_event, ban_key
from farthing.relay.moderation import rules
from farthing.settings import Settings
from farthing.store.rules import Rules, Subject
from infra.local.commands.bookkeeping import ERRORS as BOOKKEEPING
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.terminal import key_or_id, nothing, plain

ERRORS = (*BOOKKEEPING, InvalidCall)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what",
        type=key_or_id,
        nargs="?",
        help="npub, nprofile, note or nevent; hex is a key; lists all bans if left out",
    )
    parser.add_argument("--event", action="store_true", help="the hex digits are an event's id")
    parser.add_argument("--reason", default="", help="a note for the operator, shown in lists only")


def _list(found: Rules) -> None:
    if not any(map(found.of, (Subject.BANNED_KEY, Subject.BANNED_EVENT))):
        nothing("nothing is banned")
    for name, subject in (("key", Subject.BANNED_KEY), ("event", Subject.BANNED_EVENT)):
        for value, reason in sorted(found.of(subject).items()):
            print(f"{name:5}  {value}  {plain(reason)}".rstrip())


def run(arguments: Namespace, settings: Settings) -> int:
    what = arguments.what
    with offline_agent(settings) as agent:
        if what is None:
            _list(rules(agent))
        elif what.is_event or arguments.event:
            ban_event(agent, what.hex, arguments.reason)
            print(f"event {what.hex} is banned and removed")
        else:
            ban_key(agent, what.hex, arguments.reason)
            print(f"key {what.hex} is banned, and its events are being removed")
    return 0
