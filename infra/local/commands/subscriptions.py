"""`farthing subscriptions`: the paid subscriptions that others have at our relay."""

import json
from argparse import ArgumentParser, Namespace

from farthing.btp_nips.identity import Owner, key_owner
from farthing.btp_nips.lifecycle import Ending
from farthing.connector.subscriptions.ending import end_and_tell
from farthing.context import Agent
from farthing.settings import Settings
from farthing.store.paid_records import PaidSubscription
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import moment, nothing, plain, pubkey, row


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, about, act in (
        ("list", "list all subscriptions, with credit and end", _list),
        ("show", "show one subscription", _show),
        ("close", "end a subscription; its credit goes back to the owner", _close),
    ):
        one = actions.add_parser(name, help=about, description=about)
        one.set_defaults(act=act)
        if name != "list":
            one.add_argument(
                "owner", type=_owner, help="public key; or peer:ID if the owner has no key"
            )
            one.add_argument("id", help="name of the subscription, as `list` shows it")


def run(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        arguments.act(arguments, agent)
    return 0


def _list(_arguments: Namespace, agent: Agent) -> None:
    found = sorted(agent.paid_subscriptions.all(agent.now), key=lambda each: each.expires_at)
    if not found:
        nothing("nobody has a paid subscription")
    for each in found:
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
    for filter in found.filters:
        row("filter", json.dumps(filter.as_dict()))
    row("delivery", f"{found.agreed.delivery} {found.agreed.reply_to}".strip())
    row("credit", f"{account.credit}, {account.spent} spent on {account.delivered} events")
    row("position", f"{account.cursor}, paid up to {account.paid_mark}")
    row("began", moment(found.began))
    row("until", moment(found.expires_at))
    if found.trouble.failures:
        row("failures", f"{found.trouble.failures} since {moment(found.trouble.since)}")


def _close(arguments: Namespace, agent: Agent) -> None:
    found = _found(arguments, agent)
    ended = end_and_tell(agent, found, Ending.OPERATOR)  # the server tells its owner
    if ended is None:
        raise BookkeepingError("the subscription has ended already")
    row("closed", f"{ended.id} of {ended.owner}")
    row("returned", str(ended.returned))


def _found(arguments: Namespace, agent: Agent) -> PaidSubscription:
    found = agent.paid_subscriptions.get(arguments.owner, arguments.id, agent.now)
    if found is None:
        raise BookkeepingError(f"{arguments.owner} has no subscription {arguments.id!r}")
    return found


def _owner(text: str) -> Owner:
    """An owner as `list` prints it, or the key alone."""
    return Owner(text) if text.startswith("peer:") else key_owner(pubkey(text.removeprefix("key:")))
