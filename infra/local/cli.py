"""The `farthing` command."""

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from sqlite3 import DatabaseError
from typing import Any

from farthing.nostr.events import is_hex64
from farthing.nostr.filters import InvalidFilter, parse_filter
from farthing.settings import InvalidSetting, Settings
from infra.local.settings_file import with_settings_file

# Each command imports its own part when it runs: `farthing post` needs no server.
Command = Callable[[argparse.Namespace, Settings], int]
Commands = Any  # what argparse's add_subparsers gives; its type has no public name


def run(_arguments: argparse.Namespace, settings: Settings) -> int:
    from infra.local.server.app import serve
    from infra.local.server.folder import CannotStart

    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            runner.run(serve(settings))
    except CannotStart as error:
        return _fail(error)
    return 0


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # a platform that it does not support
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def import_events(arguments: argparse.Namespace, settings: Settings) -> int:
    from infra.local.commands.transfer import import_file

    report = import_file(Path(settings.data), arguments.file, progress=not arguments.quiet)
    print(
        f"{report.stored} stored, {report.duplicates} known, {report.superseded} superseded,"
        f" {report.deleted} deleted by their authors, {report.ephemeral} ephemeral,"
        f" {report.invalid} invalid"
    )
    for reason, number in sorted(report.reasons.items()):
        print(f"  {number} {reason}")
    return 0


def export_events(arguments: argparse.Namespace, settings: Settings) -> int:
    from infra.local.commands.transfer import NotExported, export_file

    filter = parse_filter(json.loads(arguments.filter))
    try:
        number = export_file(
            Path(settings.data), arguments.output, filter, progress=not arguments.quiet
        )
    except NotExported as error:
        return _fail(error)
    print(f"{number} exported", file=sys.stderr)
    return 0


def part(module: str, name: str) -> Command:
    """A function of a module here as a command: the module is loaded when it runs, and says itself
    which errors are a user's to read."""

    def command(arguments: argparse.Namespace, settings: Settings) -> int:
        loaded = import_module(f"infra.local.commands.{module}")
        try:
            status: int = getattr(loaded, name)(arguments, settings)
        except loaded.ERRORS as error:
            return _fail(error)
        return status

    return command


sync_events = part("sync", "sync")
rebuild_routes = part("rebuild", "rebuild")
report = part("report", "report")


def _fail(error: BaseException | str) -> int:
    print(f"farthing: {error or type(error).__name__}", file=sys.stderr)
    return 1


# These work on files: a deployed agent's tables are exported, restored and filled by AWS's means.
_OF_THE_FOLDER = (run, import_events, export_events, sync_events, rebuild_routes, report)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="farthing", description=__doc__)
    top.add_argument(
        "--cloud",
        action="store_true",
        help="work on the deployed agent, with your AWS credentials, and not on the data folder",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add(commands, "run", run, "run relay and connector on this machine")
    _add_transfer(commands)
    _add_sync(commands)
    _add_client(commands)
    _add_bookkeeping(commands)
    _add_following(commands)
    _add_routing(commands)
    _add_report(commands)
    _add_deployed(commands)
    return top


def _add(commands: Commands, name: str, run: Command, about: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=about, description=about)
    command.set_defaults(run=run)
    return command


def _add_transfer(commands: Commands) -> None:
    command = _add(commands, "import", import_events, "store the events of a JSONL file")
    command.add_argument("file", type=Path)
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command = _add(commands, "export", export_events, "write stored events, newest first")
    command.add_argument("-o", "--output", type=Path, help="file; an existing one is continued")
    command.add_argument("--filter", default="{}", help="a NIP-01 filter, as JSON")
    command.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_sync(commands: Commands) -> None:
    command = _add(commands, "sync", sync_events, "have the same events as another relay (NIP-77)")
    command.add_argument("url", help="WebSocket URL of the relay")
    command.add_argument("--filter", default="{}", help="a NIP-01 filter, as JSON")
    command.add_argument("--dir", choices=("down", "up", "both"), default="both",
                         help="fetch what we lack, send what they lack, or both")  # fmt: skip
    command.add_argument("--dry-run", action="store_true", help="only say what differs")
    command.add_argument("--token", default="", help="pay for uploads with it, where asked to")
    command.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_client(commands: Commands) -> None:
    for name, about in (("post", "sign an event and pay to have it stored"),
                       ("quote", "ask what storing an event costs")):  # fmt: skip
        command = _add(commands, name, part("post", name), about)
        command.add_argument("text", help="content of the event; - reads it from stdin")
        command.add_argument("--kind", type=int, default=1)
        command.add_argument(
            "--tag", action="append", default=[], type=_tag, metavar="NAME=VALUE[,VALUE]"
        )
        command.add_argument("--relay", default="", help="WebSocket URL; the local one if left out")
        command.add_argument("--owner", action="store_true", help="sign with the owner's key")
        if name == "post":
            command.add_argument("--token", default="", help="bearer token at the connector")
            command.add_argument("--connector", default="", help="URL that takes the packet")
            command.add_argument("--amount", type=int, help="pay this instead of the price")
            command.add_argument("--max-fees", type=int, help="what connectors on the way may keep"
                                 " beside it; as much as the price if left out")  # fmt: skip
    command = _add(commands, "watch", part("watch", "watch"), "print events as they come")
    command.add_argument("--relay", default="", help="WebSocket URL; the local one if left out")
    command.add_argument("--filter", default="{}", help="a NIP-01 filter, as JSON")
    command.add_argument("--json", action="store_true", help="whole events, one a line")
    command.add_argument("--changes", action="store_true", help="stored events by their numbers")
    command.add_argument("--since", type=int, help="above this number; else from the checkpoint on")
    command.add_argument("--checkpoint", type=Path, help="file with the last number that was shown")


def _tag(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError("a tag is NAME=VALUE")
    return text


def _add_bookkeeping(commands: Commands) -> None:
    _add(
        commands,
        "audit",
        part("bookkeeping", "audit"),
        "add the ledger up against receipts and events",
    )
    peers = commands.add_parser("peers", help="who may send us packets")
    actions = peers.add_subparsers(dest="action", required=True, metavar="ACTION")
    command = _add(
        actions,
        "add",
        part("bookkeeping", "add_peer"),
        "add a peer; its token is shown once",
    )
    command.add_argument("id")
    command.add_argument("--token", default="", help="a token of your own, 32 random bytes")
    command.add_argument("--jwt", action="store_true", help="make a secret for JWT_HS_256 as well")
    command.add_argument("--address", default="", help="the peer's ILP address")
    command.add_argument("--endpoint", default="", help="URL where the peer takes packets")
    command.add_argument("--pubkey", default="", type=_pubkey, help="the peer's Nostr key")
    command.add_argument("--outgoing-token", default="", help="what we show at its endpoint")
    command.add_argument("--max-balance", type=int, default=0, help="what it may owe us")
    command.add_argument("--max-packet", type=int, default=0, help="its largest packet")
    _add(
        actions,
        "list",
        part("bookkeeping", "list_peers"),
        "peers and their balances",
    )
    command = _add(
        actions,
        "set",
        part("bookkeeping", "set_peer"),
        "change a peer's record",
    )
    command.add_argument("id")
    command.add_argument("--max-balance", type=int, help="what it may owe us; 0 is the default")
    command.add_argument("--max-packet", type=int, help="its largest packet; 0 is the default")
    command.add_argument("--endpoint", help="URL where the peer takes packets")
    command.add_argument("--active", action=argparse.BooleanOptionalAction,
                         help="whether packets are taken from it and sent to it")  # fmt: skip
    for name, about in (("show", "one peer"), ("remove", "forget a peer")):
        _add(actions, name, part("bookkeeping", f"{name}_peer"), about).add_argument("id")

    command = _add(
        commands,
        "ledger",
        part("statements", "ledger"),
        "what is owed; of one peer, all that passed",
    )
    command.add_argument("id", nargs="?", default="", help="the peer; all accounts if left out")


def _add_following(commands: Commands) -> None:
    command = _add(
        commands,
        "follow",
        part("follow", "follow"),
        "follow an agent: follow = peer",
    )
    command.add_argument("pubkey", type=_pubkey, help="its public key")
    command.add_argument("--relay", default="", help="WebSocket URL where it is read")
    command = _add(
        commands,
        "unfollow",
        part("follow", "unfollow"),
        "follow an agent no longer",
    )
    command.add_argument("pubkey", type=_pubkey)
    _add(
        commands,
        "follows",
        part("follow", "list_follows"),
        "who is followed, and who is a peer",
    )
    _add(commands, "upkeep", part("follow", "upkeep"),
         "read followed agents' relays, make peers, announce routes, settle: now")  # fmt: skip


def _add_routing(commands: Commands) -> None:
    routes = commands.add_parser("routes", help="the routing table")
    routes.set_defaults(run=part("routes", "list_routes"))
    actions = routes.add_subparsers(dest="action", metavar="ACTION")
    command = _add(
        actions,
        "explain",
        part("routes", "explain_route"),
        "how packets for an address go",
    )
    command.add_argument("address")
    command = _add(actions, "rebuild", rebuild_routes, "make the table from follows (Spark)")
    command.add_argument("--input", type=Path, help="events of a file or folder: JSON lines,"
                         " a DynamoDB export or Parquet; else the stored ones")  # fmt: skip
    command.add_argument("--hops", type=int, default=6, help="longest path")
    command.add_argument("--force", action="store_true", help="even if the table has shrunk much")
    command.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_report(commands: Commands) -> None:
    command = _add(commands, "report", report, "what was stored and earned, as a page (Spark)")
    command.add_argument("-o", "--output", type=Path, default=Path("report.html"))
    command.add_argument("--days", type=int, default=30)
    command.add_argument("--parquet", type=Path, help="folder for the figures as Parquet")
    command.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_deployed(commands: Commands) -> None:
    command = _add(commands, "redrive", part("redrive", "redrive"),
                   "handle what a deployed relay's streams have given up on")  # fmt: skip
    command.add_argument("--dry-run", action="store_true", help="only look into the queues")
    command.add_argument("--unnumbered", action="store_true", help="number every stored event that"
                         " has no number, whatever the queues say")  # fmt: skip
    command = _add(
        commands,
        "cost",
        part("cost", "cost"),
        "what a deployed relay costs, from measured units",
    )
    command.add_argument("--templates", type=Path, default=Path("cdk.out"),
                         help="what was synthesised, for what it costs idle")  # fmt: skip
    command.add_argument("--prices", type=Path, help="JSON with other prices, or some of them")
    command.add_argument("--gigabytes", type=int, default=0, help="stored already")
    command.add_argument("--json", action="store_true", help="all figures, in picodollars")


def _pubkey(text: str) -> str:
    if text and not is_hex64(text):  # argparse asks about the default too
        raise argparse.ArgumentTypeError("a public key has 64 lowercase hexadecimal digits")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for library in ("botocore", "pynamodb"):  # they tell where each credential was found
        logging.getLogger(library).setLevel(logging.WARNING)
    given = parser().parse_args(arguments)
    try:
        settings = _settings(given)
        status: int = given.run(given, settings)
    except InvalidSetting as error:
        print(f"farthing: {error}", file=sys.stderr)
        return 2
    except (InvalidFilter, OSError, json.JSONDecodeError) as error:
        return _fail(error)
    except DatabaseError as error:
        return _fail(f"the database in {settings.data} cannot be used: {error}")
    return status


def _settings(given: argparse.Namespace) -> Settings:
    if not given.cloud:
        return Settings.from_env(with_settings_file(os.environ))
    from infra.local.commands.deployed import NotDeployed, deployed_settings

    if given.run in _OF_THE_FOLDER:
        raise InvalidSetting(f"`farthing {given.command}` works on a data folder only")
    try:
        return deployed_settings(os.environ)
    except NotDeployed as error:
        raise InvalidSetting(str(error)) from None
