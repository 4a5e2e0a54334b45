"""`farthing relays`: payments to other relays, events that they kept and lost, and how we read
them."""

from argparse import ArgumentParser, Namespace

from farthing.agent.follows import followed
from farthing.agent.places import feed_places, same_place
from farthing.agent.targets import keeps_what_it_is_paid_for
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import plain


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--pardon", metavar="URL", help="forget the events that this relay has lost"
    )


def run(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        if arguments.pardon:
            if not agent.outbox.pardon(same_place(arguments.pardon)):
                raise BookkeepingError("no lost events are recorded for this relay")
            print(f"{plain(arguments.pardon)} may be paid again")
            return 0
        paid, states = list(agent.outbox.relays()), list(agent.feeds.states())
        if not paid and not states:
            print("no relay was paid or read yet")
        if paid:
            print(f"{'relay':<40}{'stored':>8}{'failed':>8}{'paid':>14}{'kept':>6}{'lost':>6}")
        for each in paid:
            place = "" if keeps_what_it_is_paid_for(agent, each) else "  not paid any more"
            print(f"{plain(each.relay):<40}{each.stored:>8}{each.failed:>8}{each.paid:>14}"
                  f"{each.kept:>6}{each.lost:>6}{place}")  # fmt: skip
        places = feed_places(agent)
        if paid and states:
            print()
        if states:
            print(f"{'read':<40}{'events':>8}{'stored':>8}{'faults':>8}  by")
        for state in states:
            counts = agent.feeds.counts(state.url)
            trouble = f"  {plain(state.trouble)}" if state.trouble else ""
            if state.url not in places:
                trouble = "  not read any more"
            print(f"{plain(state.url):<40}{counts.events:>8}{counts.stored:>8}{counts.faults:>8}"
                  f"  {state.way or '-'}{trouble}")  # fmt: skip
        unread = set(followed(agent)).difference(*places.values())
        if unread:
            print(f"\nfollowed keys that are read nowhere: {len(unread)}. No relay of theirs is")
            print("known, or there are more relays than FARTHING_MAX_FEED_RELAYS")
    return 0
