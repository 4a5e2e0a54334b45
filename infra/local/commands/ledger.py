"""`farthing ledger`: all accounts and their balances, or one account entry by entry."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import NamedTuple

from farthing.context import Agent
from farthing.settings import Settings
from farthing.store.receipts import Forwarded, Purpose, PurseFilled, Stored, Subscribed
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import plain

_WIDTH = 18


class Entry(NamedTuple):
    time: int
    what: str
    theirs: int  # added to the amount that the peer owes us
    ours: int  # added to the amount that we owe the peer
    about: str = ""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", default="", help="the peer; all accounts if left out")


def run(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        if not arguments.id:
            _list_accounts(agent)
        elif agent.ledger.has_account(arguments.id):
            _print_statement(agent, arguments.id)
        else:
            raise BookkeepingError(f"there is no account {arguments.id!r}")
    return 0


def _list_accounts(agent: Agent) -> None:
    """List all accounts. A former peer may still owe us money."""
    _print_row("account", "owes us", "pending", "we owe")
    for account in agent.ledger.account_ids():
        balance = agent.ledger.balance(account)
        gone = "" if agent.ledger.peer(account) else "  (no longer a peer)"
        _print_row(account, balance.posted, balance.pending, balance.payable, gone)


def _print_row(name: str, *cells: object) -> None:
    *numbers, note = cells if len(cells) > 3 else (*cells, "")
    print(f"{name:<20}{''.join(f'{cell:>{_WIDTH}}' for cell in numbers)}{note}")


def _print_statement(agent: Agent, account: str) -> None:
    entries = [*_taken(agent, account), *_passed_on(agent, account), *_settled(agent, account)]
    print(f"{'when (UTC)':<21}{'what':<16}{'owes us':>{_WIDTH}}{'we owe':>{_WIDTH}}  about")
    for entry in sorted(entries):
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.time))
        theirs, ours = (f"{number:+d}" if number else "" for number in (entry.theirs, entry.ours))
        line = f"{moment:<21}{entry.what:<16}{theirs:>{_WIDTH}}{ours:>{_WIDTH}}  {entry.about}"
        print(line.rstrip())
    balance = agent.ledger.balance(account)
    print(f"owes us {balance.posted}, pending {balance.pending}, we owe {balance.payable}")


def _taken(agent: Agent, account: str) -> Iterator[Entry]:
    """Packets that came from this account."""
    for receipt in agent.ledger.receipts(account):
        what, about = _in_words(receipt.purpose)
        yield Entry(receipt.time, what, receipt.amount, 0, about)


def _in_words(purpose: Purpose) -> tuple[str, str]:
    match purpose:
        case Stored(event_id):
            return "stored", f"event {event_id[:16]}"
        case Forwarded(next_hop):
            return "forwarded", f"to {next_hop}"
        case PurseFilled(key):
            return "purse filled", f"of {key[:16]}"
        case Subscribed(owner, subscription_id):
            return "subscribed", plain(f"{subscription_id} of {owner[:20]}")


def _passed_on(agent: Agent, account: str) -> Iterator[Entry]:
    """Packets of others that went to this account. Their receipts are kept with the senders."""
    for sender in agent.ledger.account_ids():
        for receipt in agent.ledger.receipts(sender):
            match receipt.purpose:
                case Forwarded(next_hop, outgoing) if next_hop == account:
                    yield Entry(receipt.time, "passed on", 0, outgoing, f"from {sender}")


def _settled(agent: Agent, account: str) -> Iterator[Entry]:
    for made in agent.settlements.of(account):
        if made.received:
            yield Entry(made.time, "settled", -made.amount, 0)
        else:
            yield Entry(made.time, "we settled", 0, -made.amount)
    asked = agent.settlements.last_asked(account)
    if asked is not None and asked.is_open:
        made = asked.settlement
        yield Entry(made.time, "asked to settle", 0, 0, f"{made.amount}, no answer yet")
