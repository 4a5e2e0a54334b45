"""`farthing peers`: the peers that may send us packets, and their limits."""

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from typing import Any

from farthing.settings import Settings
from infra.local.commands import bookkeeping
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.terminal import ilp_address, pubkey, whole_number


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add(actions)
    _set(actions)
    for name, about, act in (
        ("list", "list peers and their balances", bookkeeping.list_peers),
        ("show", "show one peer", bookkeeping.show_peer),
        ("remove", "remove a peer", bookkeeping.remove_peer),
    ):
        one = actions.add_parser(name, help=about, description=about)
        one.set_defaults(act=act)
        if name != "list":
            one.add_argument("id", help=_ID)


_ID = "our name for the peer"
_BALANCE = "what the peer may owe us; FARTHING_MAX_BALANCE if left out, 0 if the peer pays ahead"


def _limit(text: str) -> int | str:
    return bookkeeping.DEFAULT if text == bookkeeping.DEFAULT else whole_number(text)


def _add(actions: Any) -> None:
    about = "add a peer; its token is shown once"
    one = actions.add_parser("add", help=about, description=about)
    one.set_defaults(act=bookkeeping.add_peer)
    one.add_argument("id", help=_ID)
    one.add_argument("--token", default="", help="a token of your own, 32 random bytes")
    one.add_argument("--jwt", action="store_true", help="make a secret for JWT_HS_256 as well")
    one.add_argument("--address", default="", type=ilp_address, help="the peer's ILP address")
    one.add_argument("--endpoint", default="", help="URL where the peer takes packets")
    one.add_argument("--pubkey", default="", type=pubkey, help="the peer's Nostr key")
    one.add_argument(
        "--outgoing-token", default="", help="the token that we send to the peer's endpoint"
    )
    one.add_argument("--max-balance", type=whole_number, help=_BALANCE)
    one.add_argument("--max-packet", type=whole_number, help="largest amount of one packet")


def _set(actions: Any) -> None:
    about = "change a peer's record"
    one = actions.add_parser("set", help=about, description=about)
    one.set_defaults(act=bookkeeping.set_peer)
    one.add_argument("id", help=_ID)
    one.add_argument("--max-balance", type=_limit, help=f"{_BALANCE}; or `default`")
    one.add_argument("--max-packet", type=_limit, help="largest amount of one packet; or `default`")
    one.add_argument("--endpoint", help="URL where the peer takes packets")
    one.add_argument(
        "--active",
        action=BooleanOptionalAction,
        help="whether we accept the peer's packets and send it packets",
    )


def run(arguments: Namespace, settings: Settings) -> int:
    status: int = arguments.act(arguments, settings)
    return status
