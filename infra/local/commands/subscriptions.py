"""`farthing subscriptions`: the paid subscriptions that others have at our relay."""

from argparse import ArgumentParser, Namespace

from farthing.btp_nips.identity import Owner, key_owner
from farthing.btp_nips.lifecycle import Ending
from farthing.connector.subscriptions.ending import end
from farthing.context import Agent
from farthing.settings import Settings
from farthing.store.paid_subscriptions import PaidSubscription
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import moment, plain, pubkey, row


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, about, act in (
        ("list", "all of them, with what is left of each", _list),
        ("show", "one of them", _show),
        ("close", "end one; what is left goes back to its owner", _close),
    ):
        one = actions.add_parser(name, help=about, description=about)
        one.set_defaults(act=act)
        if name != "list":
            one.add_argument("owner", help="public key, or peer:ID of an owner without one")
            one.add_argument("id")


def run(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        arguments.act(arguments, agent)
    return 0


def _list(_arguments: Namespace, agent: Agent) -> None:
    for each in sorted(agent.paid_subscriptions.all(agent.now), key=lambda each: each.expires_at):
        account = each.account
        print(
            f"{each.owner:<68}  {plain(each.id):<20}  {each.terms.model:<9}  {each.state:<7}  "
            f"{each.agreed.delivery:<4}  credit {account.credit}, {account.delivered} events, "
            f"until {moment(each.expires_at)}"
        )


def _show(arguments: Namespace, agent: Agent) -> None:
    found = _found(arguments, agent)
    account = found.account
    row("owner", found.owner)
    row("id", found.id)
    row("state", f"{found.state} {found.ending}".strip())
    row(
        "model", f"{found.terms.model}, price {found.terms.price}, {found.terms.event_fee} an event"
    )
    row("filters", str([filter.as_dict() for filter in found.filters]))
    row("delivery", f"{found.agreed.delivery} {found.agreed.reply_to}".strip())
    row("credit", f"{account.credit}, {account.spent} spent on {account.delivered} events")
    row("position", f"{account.cursor}, paid up to {account.paid_mark}")
    row("began", moment(found.began))
    row("until", moment(found.expires_at))
    if found.trouble.failures:
        row("failures", f"{found.trouble.failures} since {moment(found.trouble.since)}")


def _close(arguments: Namespace, agent: Agent) -> None:
    found = _found(arguments, agent)
    ended = end(agent, found, Ending.OPERATOR)
    if ended is None:
        raise BookkeepingError("the subscription has ended already")
    if ended.is_push:
        agent.paid_subscriptions.wake_at(ended, agent.now_ms)  # the server tells its owner
    row("closed", f"{ended.id} of {ended.owner}")
    row("returned", str(ended.returned))


def _found(arguments: Namespace, agent: Agent) -> PaidSubscription:
    text = arguments.owner
    owner = Owner(text) if text.startswith(("peer:", "key:")) else key_owner(pubkey(text))
    found = agent.paid_subscriptions.get(owner, arguments.id, agent.now)
    if found is None:
        raise BookkeepingError(f"{owner} has no subscription {arguments.id!r}")
    return found
