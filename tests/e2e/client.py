"""A client of the relay that speaks in frames, for tests that read from top to bottom.

Waiting is always for a frame, with a limit on how long; nothing here sleeps.
"""

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import aiohttp

from farthing.nostr.kinds import PRIVATE_KINDS
from tests.e2e.authors import Author

T = TypeVar("T")
Frame = list[Any]

WAIT_SECONDS = 10.0


class ClosedByRelay(Exception):
    """The connection has ended; `code` is that of the close frame, 1006 without one."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class Background:
    """An event loop in a thread, which runs the clients of all tests."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], seconds: float = WAIT_SECONDS) -> T:
        async def limited() -> T:
            async with asyncio.timeout(seconds):
                return await coroutine

        return asyncio.run_coroutine_threadsafe(limited(), self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class RawClient:
    """One connection. Frames that a wait passes over stay in `inbox` for a later one."""

    def __init__(
        self, background: Background, url: str, headers: dict[str, str] | None = None
    ) -> None:
        self._background = background
        self.url = url
        self.inbox: list[Frame] = []
        self._session, self._socket = background.run(self._connect(url, headers))

    @staticmethod
    async def _connect(
        url: str, headers: dict[str, str] | None
    ) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
        session = aiohttp.ClientSession(headers=headers)
        try:
            return session, await session.ws_connect(url, max_msg_size=0)
        except BaseException:
            await session.close()
            raise

    def close(self) -> None:
        async def end() -> None:
            await self._socket.close()
            await self._session.close()

        self._background.run(end(), seconds=30)

    def abort(self) -> None:
        """Leave without a word."""

        async def end() -> None:
            transport = self._socket.get_extra_info("socket") and self._socket._conn.transport
            transport.abort()
            await self._session.close()

        self._background.run(end())

    # Frames out

    def send(self, *parts: object) -> None:
        self.send_text(json.dumps(parts))

    def send_text(self, *texts: str) -> None:
        async def send_all() -> None:
            for text in texts:
                await self._socket.send_str(text)

        self._background.run(send_all(), seconds=30)

    def send_bytes(self, data: bytes) -> None:
        self._background.run(self._socket.send_bytes(data))

    def send_frame(self, data: bytes, opcode: aiohttp.WSMsgType) -> None:
        """A frame as it is, valid or not."""
        self._background.run(self._socket.send_frame(data, opcode))

    # Frames in

    def receive(self, seconds: float = WAIT_SECONDS) -> Frame:
        """The next frame from the relay."""
        message = self._background.run(self._socket.receive(), seconds)
        if message.type is aiohttp.WSMsgType.CLOSE:
            raise ClosedByRelay(message.data)
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise ClosedByRelay(self._socket.close_code)
        frame: Frame = json.loads(message.data)
        return frame

    def wait_for(self, *head: object) -> Frame:
        """The first frame that begins so, of those in the inbox and then of those to come."""
        for number, frame in enumerate(self.inbox):
            if frame[: len(head)] == list(head):
                return self.inbox.pop(number)
        while True:
            frame = self.receive()
            if frame[: len(head)] == list(head):
                return frame
            self.inbox.append(frame)

    def wait_for_close(self) -> int | None:
        """The close code, after whatever else is still sent; that goes into the inbox."""
        try:
            while True:
                self.inbox.append(self.receive(seconds=30))
        except ClosedByRelay as closed:
            return closed.code

    # The protocol's questions

    def publish(self, event: dict[str, Any]) -> tuple[bool, str]:
        """What OK says."""
        self.send("EVENT", event)
        _, _, accepted, message = self.wait_for("OK", event["id"])
        return accepted, message

    def store(self, *events: dict[str, Any]) -> None:
        """Publish events that nothing is wrong with, pipelined.

        Returns when they have also gone out to subscribers: a REQ that came before that might be
        sent them twice, as stored and as new.
        """
        public = [event["id"] for event in events if event["kind"] not in PRIVATE_KINDS]
        self.send("REQ", "storing", {"ids": public, "limit": 0})
        self.send_text(*(json.dumps(["EVENT", event]) for event in events))
        for event in events:
            assert self.wait_for("OK", event["id"])[2:] == [True, ""]
        for _ in public:
            assert self.wait_for("EVENT", "storing")[2]["id"] in public
        self.send("CLOSE", "storing")
        self.wait_for("EOSE", "storing")

    def request(self, subscription: str, *filters: dict[str, Any]) -> list[dict[str, Any]]:
        """Stored events in the order in which they came; the subscription stays open."""
        self.send("REQ", subscription, *filters)
        return self.stored(subscription)

    def stored(self, subscription: str) -> list[dict[str, Any]]:
        """The events of a subscription up to its EOSE."""
        events = []
        while True:
            frame = self.receive()
            if frame[:2] == ["EVENT", subscription]:
                events.append(frame[2])
            elif frame == ["EOSE", subscription]:
                return events
            elif frame[:2] == ["CLOSED", subscription]:
                raise AssertionError(f"refused: {frame[2]}")
            else:
                self.inbox.append(frame)

    def ask(self, *filters: dict[str, Any]) -> list[dict[str, Any]]:
        """Stored events, and no subscription afterwards."""
        events = self.request("ask", *filters)
        self.send("CLOSE", "ask")
        return events

    def ids(self, *filters: dict[str, Any]) -> list[str]:
        return [event["id"] for event in self.ask(*filters)]

    def refusal(self, *message: object) -> str:
        """Why a REQ or COUNT is CLOSED."""
        self.send(*message)
        reason: str = self.wait_for("CLOSED", message[1])[2]
        return reason

    def count(self, *filters: dict[str, Any]) -> dict[str, Any]:
        self.send("COUNT", "count", *filters)
        body: dict[str, Any] = self.wait_for("COUNT", "count")[2]
        return body

    def challenge(self) -> str:
        """The relay sends it with the answer to a connection's first message."""
        self.send("CLOSE", "nothing")
        challenge: str = self.wait_for("AUTH")[1]
        return challenge

    def authenticate(self, author: Author, **changes: Any) -> tuple[bool, str]:
        """AUTH as the author; `changes` makes it a wrong one."""
        event = author.auth_event(**{"challenge": self.challenge(), "relay": self.url, **changes})
        self.send("AUTH", event)
        _, _, accepted, message = self.wait_for("OK", event["id"])
        return accepted, message


@contextmanager
def connected(background: Background, url: str) -> Iterator[RawClient]:
    client = RawClient(background, url)
    try:
        yield client
    finally:
        client.close()
