"""`farthing watch`: a live subscription, one line an event; or the changes feed, by its numbers."""

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
from infra.local.commands.relay_address import relay, relay_url
from infra.local.commands.terminal import event_line, filter_json, whole_number

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_PING_SECONDS = 30
# What an event's author and the relay may differ by, in their clocks and in their haste.
_OVERLAP_SECONDS = 300
_REMEMBERED = 10_000  # events that are not shown again


ERRORS = (WatchFailed, aiohttp.ClientError)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--relay", default="", type=relay, help="WebSocket URL; the local one if left out"
    )
    parser.add_argument("--filter", default="{}", type=filter_json, help="a NIP-01 filter, as JSON")
    parser.add_argument("--json", action="store_true", help="whole events, one a line")
    parser.add_argument(
        "--aether", action="store_true", help="Aether events; the filter is Aether's"
    )
    parser.add_argument("--changes", action="store_true", help="stored events by their numbers")
    parser.add_argument(
        "--since", type=whole_number, help="above this number; else from the checkpoint on"
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
    """What was stored between two connections is asked for again, and shown once."""
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
    """Over as many connections as it takes, once there has been one: a relay behind API Gateway
    ends each after ten idle minutes, or two hours."""
    wait, began = _FIRST_WAIT, False
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.ws_connect(relay, heartbeat=_PING_SECONDS) as socket:
                    began, wait = True, _FIRST_WAIT
                    await talk(socket)
            except aiohttp.ClientError:
                if not began:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)


class Checkpoint:
    """The number up to which everything has been printed, in a file that is whole at any time."""

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
            raise WatchFailed(f"{self._path} holds no number") from None

    def move(self, number: int) -> None:
        self.number = number
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        new.write_text(f"{number}\n")
        os.replace(new, self._path)


def _checkpoint_path(folder: Path, relay: str, filter: dict[str, Any]) -> Path:
    """Numbers are the relay's own, and a checkpoint is for what the filter lets through."""
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
    """Until the connection ends. An answer that was cut is asked for again, from where it ended."""

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
