"""`farthing purse`: money that clients have paid in advance. Show, list, grant and freeze are for
the operator. Fill pays into any purse at any relay, from an account at a connector."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from secrets import token_hex
from typing import Any

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import largest_packet, prepare_fill, send_payment, utc_now
from farthing.context import Agent
from farthing.ilp.money import with_units
from farthing.ilp.packet import Fulfill, Reject
from farthing.ilp.purse import is_public_key
from farthing.ports.hosts import ANYWHERE
from farthing.settings import Settings
from farthing.store.purses import Movement, Purse
from infra.local.commands import bookkeeping, paying
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.paying import add_connector_arguments, ask_for_quote, connector_token
from infra.local.commands.relay_address import relay, web_url
from infra.local.commands.terminal import moment, npub, pubkey, row, whole_number

ERRORS = (*bookkeeping.ERRORS, *paying.ERRORS)

_WIDTH = 18
_SHOWN_MOVEMENTS = 20

_AMOUNT = "units of the relay's asset"

Act = Callable[[Namespace, Settings], int]


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _action(actions, "list", "list all purses and their balances", list_purses, key=False)
    _action(actions, "show", "show one purse and its last movements", show)
    grant_parser = _action(
        actions, "grant", "add money to a purse as a gift, which is not revenue", grant
    )
    grant_parser.add_argument("amount", type=whole_number, help=_AMOUNT)
    freezer = _action(actions, "freeze", "stop payments into a purse and out of it", freeze)
    freezer.add_argument("--off", action="store_true", help="allow payments again")
    filler = _action(actions, "fill", "pay into a purse by packet", fill)
    filler.add_argument("amount", type=whole_number, help=_AMOUNT)
    filler.add_argument(
        "--relay",
        default="",
        type=relay,
        help="WebSocket URL of the purse's relay; the local one if left out",
    )
    add_connector_arguments(filler)


def _action(actions: Any, name: str, about: str, act: Act, *, key: bool = True) -> ArgumentParser:
    one: ArgumentParser = actions.add_parser(name, help=about, description=about)
    one.set_defaults(act=act)
    if key:
        one.add_argument("key", type=pubkey, help="key of the purse: npub or 64 hex digits")
    return one


def run(arguments: Namespace, settings: Settings) -> int:
    if getattr(arguments, "key", None) and not is_public_key(bytes.fromhex(arguments.key)):
        raise BookkeepingError(
            f"expected a public key, got {arguments.key}: no curve point has this x-coordinate"
        )
    if getattr(arguments, "amount", None) == 0:
        raise BookkeepingError("expected an amount above 0")
    status: int = arguments.act(arguments, settings)
    return status


def list_purses(_arguments: Namespace, settings: Settings) -> int:
    print(f"{'purse':<64}{_cells('left', 'filled', 'granted', 'drawn')}")
    totals = Purse("")
    with offline_agent(settings) as agent:
        for purse in agent.purses.all():
            print(f"{purse.key:<64}{_numbers(purse)}{'  (frozen)' if purse.is_frozen else ''}")
            totals = _sum(totals, purse)
    print(f"{'all':<64}{_numbers(totals)}")
    return 0


def _numbers(purse: Purse) -> str:
    return _cells(purse.left, purse.filled, purse.granted, purse.drawn)


def _cells(*values: object) -> str:
    return "".join(f"{value:>{_WIDTH}}" for value in values)


def _sum(one: Purse, other: Purse) -> Purse:
    return Purse(
        "",
        left=one.left + other.left,
        filled=one.filled + other.filled,
        granted=one.granted + other.granted,
        drawn=one.drawn + other.drawn,
    )


def show(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        _show(agent, agent.purses.get(arguments.key))
        for movement in agent.purses.last_movements(arguments.key, _SHOWN_MOVEMENTS):
            print(_line(movement))
    return 0


def _show(agent: Agent, purse: Purse) -> None:
    settings = agent.settings
    row("purse", purse.key)
    row("npub", npub(purse.key))
    row("page", settings.purse_url(purse.key))
    row("left", with_units(purse.left, settings.asset_code, settings.asset_scale))
    for name in ("filled", "granted", "drawn"):
        row(name, str(getattr(purse, name)))
    if purse.is_frozen:
        row("frozen", "yes")


def _line(movement: Movement) -> str:
    about = movement.detail.get("event_id", "")[:16]
    when = moment(movement.time_ms // 1000)
    line = f"{when}  {movement.kind:<8} {movement.way:<12} {movement.amount:>{_WIDTH}}  {about}"
    return line.rstrip()


def grant(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        if not agent.purses.grant(arguments.key, arguments.amount, agent.now_ms, token_hex(8)):
            raise BookkeepingError("the purse is frozen")
        _show(agent, agent.purses.get(arguments.key))
    return 0


def freeze(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        _show(agent, agent.purses.freeze(arguments.key, frozen=not arguments.off))
    return 0


def fill(arguments: Namespace, settings: Settings) -> int:
    """Pay the amount, in several packets if connectors on the way limit the size of one."""
    where = web_url(arguments, settings)
    left, packets, most = arguments.amount, 0, arguments.amount
    while left:
        reply = _send(arguments, settings, where, min(left, most))
        if isinstance(reply, Fulfill):
            left -= min(left, most)
            packets += 1
        elif 0 < largest_packet(reply) < most:
            most = largest_packet(reply)
        else:
            row("rejected", f"{reply.code} {reply.message} (by {reply.triggered_by or 'unknown'})")
            break
    row("paid", f"{arguments.amount - left} in {packets} packet{'' if packets == 1 else 's'}")
    return 1 if left else 0


def _send(arguments: Namespace, settings: Settings, where: str, amount: int) -> Fulfill | Reject:
    quote = ask_for_quote(where, {"purse": arguments.key, "amount": str(amount)})
    payment = prepare_fill(quote, arguments.key, amount, utc_now())
    endpoint = arguments.connector or str(quote.get("endpoint", ""))
    token = connector_token(arguments, settings, endpoint)
    return send_payment(HttpOutbound(ANYWHERE), endpoint, token, payment)
