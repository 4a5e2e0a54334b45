"""A connection to another relay: one request at a time, and the frames that answer it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from farthing.nostr.events import Event, sign_event
from farthing.nostr.kinds import Kind
from farthing.nostr.messages import Prefix
from infra.local.commands.connecting import why_not_connected

_LARGEST_FRAME = 16 * 1024 * 1024
_HEARTBEAT_SECONDS = 30
_CONNECT_SECONDS = 15
# A relay that has to gather a million events first takes a while.
_PATIENCE_SECONDS = 120
# A relay that answers only by NOTICE has not understood the request.
_AFTER_NOTICE_SECONDS = 3

Frame = list[Any]
Take = Callable[[Frame], Awaitable[None]]


class RemoteFailed(Exception):
    """The relay cannot be reached, has gone, or does not answer; the message says which."""


@dataclass
class Remote:
    url: str
    _socket: aiohttp.ClientWebSocketResponse
    bytes_sent: int = 0
    bytes_received: int = 0
    _taking: dict[str, Take] = field(default_factory=dict)

    async def send(self, *parts: object) -> None:
        await self.send_text(json.dumps(parts, separators=(",", ":"), ensure_ascii=False))

    async def send_text(self, text: str) -> None:
        self.bytes_sent += len(text.encode())
        try:
            await self._socket.send_str(text)
        except (ConnectionError, aiohttp.ClientError):
            raise RemoteFailed("the relay has closed the connection") from None

    async def answers(self, *heads: tuple[str, ...]) -> AsyncIterator[Frame]:
        """The frames that begin with one of these heads, until the caller stops reading.

        Raises RemoteFailed, with the relay's NOTICE if it sent one, if no frame comes in time.
        """
        wanted = [list(head) for head in heads]
        notice, patience = "", float(_PATIENCE_SECONDS)
        while True:
            try:
                async with asyncio.timeout(patience):
                    frame = await self._receive()
            except TimeoutError:
                raise RemoteFailed(notice or "the relay does not answer") from None
            if await self._take(frame):
                continue
            if any(frame[: len(head)] == head for head in wanted):
                yield frame
            elif frame[:1] == ["NOTICE"]:
                notice, patience = f"the relay says: {frame[-1]}", _AFTER_NOTICE_SECONDS

    async def subscribe(self, name: str, take: Take, *request: object) -> None:
        """Send a request and have `take` called with the frames of its name, whenever frames are
        read: also during another request."""
        self._taking[name] = take
        await self.send(*request)

    async def unsubscribe(self, name: str) -> None:
        del self._taking[name]
        await self.send("CLOSE", name)

    async def listen(self, seconds: float) -> bool:
        """Read one frame and pass it to its subscription. Returns False if none comes in time."""
        try:
            async with asyncio.timeout(seconds):
                frame = await self._receive()
        except TimeoutError:
            return False
        await self._take(frame)
        return True

    async def _take(self, frame: Frame) -> bool:
        """Whether the frame was a subscription's."""
        name = frame[1] if len(frame) > 1 else None
        take = self._taking.get(name) if isinstance(name, str) else None
        if take is None or frame[0] in ("OK", "NOTICE"):
            return False
        await take(frame)
        return True

    async def _receive(self) -> Frame:
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise RemoteFailed("the relay has closed the connection")
            self.bytes_received += len(message.data.encode())
            try:
                frame = json.loads(message.data)
            except ValueError:
                continue
            if isinstance(frame, list):
                return frame


async def publish_logged_in(url: str, event: Event, secret: bytes) -> tuple[bool, str]:
    """Publish an event. If the relay asks for a login (NIP-42), log in and send the event again.
    Returns the relay's last OK."""
    sent = ["EVENT", event.as_dict()]
    challenge, asked = "", False
    async with connected(url) as relay:
        await relay.send(*sent)
        async for frame in relay.answers(("AUTH",), ("OK", event.id)):
            if frame[0] == "AUTH":
                challenge = str(frame[1])
            elif not _asks_for_login(frame) or asked or not challenge:
                return frame[2] is True, str(frame[3])
            else:
                asked = True
                await relay.send("AUTH", _login(secret, url, challenge).as_dict())
                await relay.send(*sent)
    raise RemoteFailed("the relay does not answer")


def _asks_for_login(frame: Frame) -> bool:
    return len(frame) > 3 and str(frame[3]).startswith(f"{Prefix.AUTH_REQUIRED}:")


def _login(secret: bytes, url: str, challenge: str) -> Event:
    tags = [["relay", url], ["challenge", challenge]]
    now = int(time.time())
    return sign_event(secret, kind=Kind.CLIENT_AUTH, content="", created_at=now, tags=tags)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Remote]:
    async with aiohttp.ClientSession() as session:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                socket = await session.ws_connect(
                    url, max_msg_size=_LARGEST_FRAME, heartbeat=_HEARTBEAT_SECONDS
                )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise RemoteFailed(f"cannot connect to {url}: {why_not_connected(error)}") from None
        try:
            yield Remote(url, socket)
        finally:
            await socket.close()
