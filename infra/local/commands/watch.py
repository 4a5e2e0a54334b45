"""`farthing watch`: print events of a live subscription or of the changes feed, one per line."""

import asyncio
import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp

from farthing.settings import Settings
from infra.local.commands.aether_client import WatchFailed
from infra.local.commands.aether_client import watch as watch_aether
from infra.local.commands.connecting import why_not_connected
from infra.local.commands.relay_address import relay, relay_url
from infra.local.commands.terminal import event_line, filter_json, whole_number

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_PING_SECONDS = 30
# An event's time may be this far from the time at which the relay stores it.
_OVERLAP_SECONDS = 300
_REMEMBERED = 10_000  # events that are not shown again


ERRORS = (WatchFailed, aiohttp.ClientError)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--relay", default="", type=relay, help="WebSocket URL; the local one if left out"
    )
    parser.add_argument("--filter", default="{}", type=filter_json, help="a NIP-01 filter, as JSON")
    parser.add_argument("--json", action="store_true", help="print whole events, one per line")
    parser.add_argument(
        "--aether",
        action="store_true",
        help="print Aether events; --filter is then an Aether filter",
    )
    parser.add_argument(
        "--changes",
        action="store_true",
        help="print stored events with their numbers in the changes feed",
    )
    parser.add_argument(
        "--since",
        type=whole_number,
        help="only events above this number; from the checkpoint on if left out",
    )
    parser.add_argument("--checkpoint", type=Path, help="file with the last number that was shown")


def run(arguments: Namespace, settings: Settings) -> int:
    filter = json.loads(arguments.filter)
    relay = relay_url(arguments, settings)
    if arguments.aether:
        watching = watch_aether(relay, filter, arguments.json)
    elif arguments.changes:
        path = arguments.checkpoint or _checkpoint_path(Path(settings.data), relay, filter)
        watching = _follow(relay, filter, Checkpoint(path, arguments.since), arguments.json)
    else:
        watching = _watch(relay, filter, arguments.json)
    try:
        asyncio.run(watching)
    except KeyboardInterrupt:
        return 0
    return 0


async def _watch(relay: str, filter: dict[str, Any], as_json: bool) -> None:
    """After a reconnection, ask for the events since the last one. Each event is shown once."""
    shown: dict[str, None] = {}
    asked = filter

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        nonlocal asked
        await socket.send_json(["REQ", "watch", asked])
        try:
            async for frame in socket:
                _show(json.loads(frame.data), shown, as_json)
        finally:
            since = max(filter.get("since", 0), int(time.time()) - _OVERLAP_SECONDS)
            asked = {**filter, "since": since}
            asked.pop("limit", None)

    await _over_connections(relay, talk)


def _show(message: list[Any], shown: dict[str, None], as_json: bool) -> None:
    if message[0] in ("CLOSED", "NOTICE"):
        raise WatchFailed(str(message[-1]))
    if message[0] == "EVENT" and message[2]["id"] not in shown:
        shown[message[2]["id"]] = None
        if len(shown) > _REMEMBERED:
            del shown[next(iter(shown))]
        print(json.dumps(message[2]) if as_json else event_line(message[2]), flush=True)


async def _over_connections(
    relay: str, talk: Callable[[aiohttp.ClientWebSocketResponse], Awaitable[None]]
) -> None:
    """Connect again whenever a connection ends, if the first one succeeded: API Gateway ends a
    connection after ten idle minutes, or after two hours."""
    wait, began = _FIRST_WAIT, False
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.ws_connect(relay, heartbeat=_PING_SECONDS) as socket:
                    began, wait = True, _FIRST_WAIT
                    await talk(socket)
            except aiohttp.ClientError as error:
                if not began:
                    reason = why_not_connected(error)
                    raise WatchFailed(f"cannot connect to {relay}: {reason}") from None
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)


class Checkpoint:
    """The number up to which everything has been printed, in a file that is replaced as a whole."""

    def __init__(self, path: Path, since: int | None) -> None:
        self._path = path
        self.number = self._read() if since is None else since
        print(f"changes above {self.number}, checkpoint in {path}", file=sys.stderr)

    def _read(self) -> int:
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return 0
        except ValueError:
            raise WatchFailed(f"expected a number in {self._path}") from None

    def move(self, number: int) -> None:
        self.number = number
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        new.write_text(f"{number}\n")
        os.replace(new, self._path)


def _checkpoint_path(folder: Path, relay: str, filter: dict[str, Any]) -> Path:
    """The default checkpoint file: one for each relay and filter, as each relay has own numbers."""
    name = sha256(json.dumps([relay, filter], sort_keys=True).encode()).hexdigest()[:16]
    return folder / "checkpoints" / name


async def _follow(
    relay: str, filter: dict[str, Any], checkpoint: Checkpoint, as_json: bool
) -> None:
    await _over_connections(
        relay, lambda socket: _read_changes(socket, filter, checkpoint, as_json)
    )


async def _read_changes(
    socket: aiohttp.ClientWebSocketResponse,
    filter: dict[str, Any],
    checkpoint: Checkpoint,
    as_json: bool,
) -> None:
    """Read until the connection ends. If an answer was cut short, ask for the rest of it."""

    async def ask() -> None:
        wanted = {**filter, "since": checkpoint.number, "live": True}
        await socket.send_json(["CHANGES", "watch", wanted])

    await ask()
    async for frame in socket:
        match json.loads(frame.data):
            case ["CHANGES", _, "EVENT", number, event]:
                line = json.dumps(event) if as_json else event_line(event)
                print(f"{number}  {line}", flush=True)
                checkpoint.move(number)
            case ["CHANGES", _, "EOSE", _, {"next": behind}]:
                checkpoint.move(behind)
                await ask()
            case ["CHANGES", _, "EOSE", last]:
                checkpoint.move(max(last, checkpoint.number))
            case ["CHANGES" | "NOTICE", *_, reason]:
                raise WatchFailed(str(reason))
