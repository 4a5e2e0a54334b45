"""`farthing capability`: issue, list and revoke tokens that let others write Aether events for
free."""

import json
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from farthing.aether import keys
from farthing.aether.capabilities import WRITE, issue, parse_token, write_capability
from farthing.aether.errors import CapabilityRefused
from farthing.aether.kinds import MAX_KIND
from farthing.settings import Settings
from farthing.store.capabilities import Capabilities, Issued
from infra.local.commands import bookkeeping
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import moment, nothing, whole_number
from infra.local.server.identity import with_identity

ERRORS = (*bookkeeping.ERRORS, CapabilityRefused)

_DAY_NS = 24 * 3600 * 10**9


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    about = "sign a token for a key, and print it"
    one = actions.add_parser("issue", help=about, description=about)
    one.set_defaults(act=issue_token)
    one.add_argument("subject", type=_key, help="Aether key that may write: 64 hex digits")
    one.add_argument("--kind", type=_kind, help="only events of this kind; all kinds if left out")
    one.add_argument("--max-uses", type=whole_number, help="number of events at most")
    one.add_argument("--days", type=whole_number, help="number of days that the token is valid")
    one.add_argument("--ip", action="append", help="only from this address or network (CIDR)")
    about = "list the tokens that were issued here, and how often they were used"
    actions.add_parser("list", help=about, description=about).set_defaults(act=list_tokens)
    about = "refuse a token from now on, and all tokens that were made from it"
    one = actions.add_parser("revoke", help=about, description=about)
    one.set_defaults(act=revoke)
    one.add_argument("id", type=_key, help="the token's id, as `list` shows it")


def _key(text: str) -> str:
    if not keys.is_key(text):
        raise ArgumentTypeError("expected 64 lower-case hexadecimal digits")
    return text


def _kind(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_KIND:
        raise ArgumentTypeError(f"expected a number from 0 to {MAX_KIND}")
    return int(text)


def run(arguments: Namespace, settings: Settings) -> int:
    status: int = arguments.act(arguments, settings)
    return status


def issue_token(arguments: Namespace, settings: Settings) -> int:
    seed = keys.owner_seed(with_identity(settings).secret)
    caveats: dict[str, Any] = {}
    if arguments.max_uses is not None:
        caveats["max_uses"] = arguments.max_uses
    if arguments.days is not None:
        caveats["not_after"] = time.time_ns() + arguments.days * _DAY_NS
    if arguments.ip:
        caveats["ip"] = arguments.ip
    capability = WRITE if arguments.kind is None else write_capability(arguments.kind)
    token = issue(seed, subject=arguments.subject, capability=capability, caveats=caveats)
    text = json.dumps(token)
    with offline_agent(settings) as agent:
        Capabilities(agent.engine).add(parse_token(token).id, text, agent.now)
    print(text)
    return 0


def list_tokens(_arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        found = list(Capabilities(agent.engine).issued())
        if not found:
            nothing("no token was issued yet")
        for issued in found:
            print(_line(issued))
    return 0


def _line(issued: Issued) -> str:
    token = json.loads(issued.token)
    most = token["caveats"].get("max_uses")
    uses = f"{issued.uses} used" if most is None else f"{issued.uses} of {most} used"
    state = f", revoked {moment(issued.revoked)}" if issued.revoked is not None else ""
    return (
        f"{issued.id}  {moment(issued.time)}  {token['subject']}  {token['capability']}"
        f"  {uses}{state}"
    )


def revoke(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        capabilities = Capabilities(agent.engine)
        known = {issued.id: issued for issued in capabilities.issued()}
        if arguments.id in known and known[arguments.id].revoked is not None:
            raise BookkeepingError("this token is revoked already")
        capabilities.revoke(arguments.id, agent.now)
    print(f"revoked {arguments.id}")
    return 0
