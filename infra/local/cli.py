"""The `farthing` command: finds the command that was typed, loads its module, and runs it.

Each command is a module of `infra.local.commands` with `add_arguments(parser)`,
`run(arguments, settings)` and `ERRORS`, the errors whose text is shown to the user. Only the module
of the command that was typed is loaded: `farthing post` needs no server.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from sqlite3 import DatabaseError
from typing import Any, NamedTuple

import farthing
from farthing.nostr.filters import InvalidFilter
from farthing.settings import InvalidSetting, Settings
from infra.local.commands.terminal import plain
from infra.local.settings_file import with_settings_file


class Command(NamedTuple):
    name: str
    about: str
    # The command works on files of the data folder. In the cloud, AWS's own tools export, restore
    # and fill the tables.
    needs_folder: bool = False

    @property
    def module(self) -> Any:
        name = "import_" if self.name == "import" else self.name
        return import_module(f"infra.local.commands.{name}")


COMMANDS = (
    Command("run", "run relay and connector on this machine", needs_folder=True),
    Command("post", "sign an event and pay to have it stored"),
    Command("quote", "ask what storing an event costs"),
    Command("watch", "print events as they come"),
    Command("subscribe", "pay for events to be delivered, and print them as they come"),
    Command("subscriptions", "paid subscriptions of others at our relay: list, show, close"),
    Command("import", "store the events of a JSONL file", needs_folder=True),
    Command("export", "write stored events, newest first", needs_folder=True),
    Command(
        "sync",
        "exchange events with another relay until both have the same (NIP-77)",
        needs_folder=True,
    ),
    Command(
        "stream",
        "keep exchanging events with other relays, in one direction or both",
        needs_folder=True,
    ),
    Command("peers", "peers, which may send us packets: add, list, show, set, remove"),
    Command("ledger", "balances of all peers, or all entries of one peer"),
    Command("purse", "money that clients have paid in advance: show, fill, grant, list, freeze"),
    Command("aether", "the agent's own keys in Aether"),
    Command("capability", "let others write Aether events: issue, list, revoke"),
    Command("audit", "check the ledger against receipts and events"),
    Command("feed", "print events of the keys that you follow, live"),
    Command("broadcast", "pay the relays of followers and of mentioned keys to store an event"),
    Command("broadcasts", "where events were broadcast, what that cost, and what failed"),
    Command("relays", "other relays: payments, events kept and lost, and how we read them"),
    Command("follow", "follow an agent: follow = peer = subscribe"),
    Command("unfollow", "stop following an agent"),
    Command("follows", "list the keys that are followed, and which of them are peers"),
    Command("upkeep", "read followed agents' relays, make peers, announce routes and settle, now"),
    Command("routes", "the routing table: list, explain, rebuild"),
    Command("ban", "ban a key or an event, and remove the stored events; list the bans"),
    Command("unban", "lift a ban"),
    Command("allow", "let a key write for free; list such keys"),
    Command("delete", "remove stored events"),
    Command("scan", "print stored events that match a filter"),
    Command("backup", "copy all data consistently, while the server runs", needs_folder=True),
    Command("restore", "put a backup into an empty data folder, and audit it", needs_folder=True),
    Command("report", "what was stored and earned, as a page (Spark)", needs_folder=True),
    Command("redrive", "retry what a deployed relay's streams and queues have given up on"),
    Command("cost", "what a deployed relay costs, from measured units"),
)


def parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser, with the arguments of the chosen command alone; of all commands without one."""
    top = argparse.ArgumentParser(prog="farthing", description="Relay and connector in one.")
    top.add_argument("--version", action="version", version=f"farthing {farthing.__version__}")
    top.add_argument(
        "--cloud",
        action="store_true",
        help="work on the deployed agent, with your AWS credentials, and not on the data folder",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        one = commands.add_parser(command.name, help=command.about, description=command.about)
        one.set_defaults(chosen=command)
        if chosen in (None, command.name):
            command.module.add_arguments(one)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for library in ("botocore", "pynamodb"):  # they log where each credential was found
        logging.getLogger(library).setLevel(logging.WARNING)
    typed = list(sys.argv[1:] if arguments is None else arguments)
    if not typed:
        parser("").print_help(sys.stderr)
        return 2
    named = next((each for each in typed if not each.startswith("-")), "")
    given = parser(named).parse_args(typed)
    command: Command = given.chosen
    try:
        settings = _settings(given, command)
        status: int = command.module.run(given, settings)
        sys.stdout.flush()
    except InvalidSetting as error:
        print(f"farthing: {plain(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return _nobody_reads()
    except (*command.module.ERRORS, InvalidFilter, OSError, json.JSONDecodeError) as error:
        return fail(error)
    except DatabaseError as error:
        return fail(f"the database in {settings.data} cannot be used: {error}")
    return status


def fail(error: BaseException | str) -> int:
    """Say in one line what is wrong."""
    text = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    print(f"farthing: {plain(text) or type(error).__name__}", file=sys.stderr)
    return 1


def _nobody_reads() -> int:
    """End quietly: `farthing export | head` has all lines that it wants. Python would complain when
    it closes the output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _settings(given: argparse.Namespace, command: Command) -> Settings:
    if not given.cloud:
        return Settings.from_env(with_settings_file(os.environ))
    from infra.local.commands.deployed import NotDeployed, deployed_settings

    if command.needs_folder:
        raise InvalidSetting(f"`farthing {command.name}` works on a data folder only")
    try:
        return deployed_settings(os.environ)
    except NotDeployed as error:
        raise InvalidSetting(str(error)) from None
