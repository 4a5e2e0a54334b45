"""`farthing watch`: a live subscription, one line an event."""

import asyncio
import json
from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

import aiohttp

from farthing.settings import Settings
from infra.local.payer import relay_url


class WatchFailed(Exception):
    """The relay ended the subscription."""


def watch(arguments: Namespace, settings: Settings) -> int:
    filter = json.loads(arguments.filter)
    try:
        asyncio.run(_watch(relay_url(arguments, settings), filter, arguments.json))
    except KeyboardInterrupt:
        return 0
    return 0


async def _watch(relay: str, filter: dict[str, Any], as_json: bool) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(relay) as socket:
        await socket.send_json(["REQ", "watch", filter])
        async for frame in socket:
            message = json.loads(frame.data)
            if message[0] == "EVENT":
                print(json.dumps(message[2]) if as_json else event_line(message[2]), flush=True)
            elif message[0] in ("CLOSED", "NOTICE"):
                raise WatchFailed(message[-1])
    raise WatchFailed("the relay closed the connection")


def event_line(event: dict[str, Any]) -> str:
    when = datetime.fromtimestamp(event["created_at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
    content = " ".join(event["content"].split())
    return f"{when}  {event['pubkey'][:8]}  kind {event['kind']:<5}  {content[:100]}"
