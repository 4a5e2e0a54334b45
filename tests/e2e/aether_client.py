"""A client that speaks Aether: in JSON or frames, as text or binary, plain or by Noise.

It uses our codec and our Noise; both are held to other implementations in tests/aether.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from farthing.aether import keys, messages, noise
from farthing.aether.events import Event, sign_event
from farthing.aether.frames import BY_WORD, MessageType
from farthing.aether.messages import Envelope, Format, Outgoing
from tests.e2e.client import Background, ClosedByRelay

JSON = Envelope(Format.JSON)
BASE64 = Envelope(Format.FLATBUFFERS)
BINARY = Envelope(Format.FLATBUFFERS, binary=True)
PREFIXED = Envelope(Format.FLATBUFFERS, binary=True, prefixed=True)
ENVELOPES = {"JSON": JSON, "base64": BASE64, "binary": BINARY, "prefixed": PREFIXED}

Body = dict[str, Any]


class AetherAuthor:
    def __init__(self, seed: bytes | None = None) -> None:
        self.seed = seed or secrets.token_bytes(32)
        self.pubkey = keys.public_key(self.seed)

    def event(self, content: str = "hello", *, kind: int = 1, **fields: Any) -> Event:
        created_at = fields.pop("created_at", time.time_ns())
        return sign_event(self.seed, kind=kind, content=content, created_at=created_at, **fields)


class AetherClient:
    def __init__(
        self,
        background: Background,
        url: str,
        envelope: Envelope = JSON,
        *,
        protocols: Sequence[str] = (),
    ) -> None:
        self._background = background
        self.envelope = envelope
        self.inbox: list[Body] = []
        self.session: noise.Session | None = None
        self.inner = Format.JSON
        self._sent = 0
        self.received: list[int] = []  # counters
        self._http, self.socket = background.run(self._connect(url, protocols))

    @staticmethod
    async def _connect(
        url: str, protocols: Sequence[str]
    ) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
        session = aiohttp.ClientSession()
        try:
            return session, await session.ws_connect(url, max_msg_size=0, protocols=protocols)
        except BaseException:
            await session.close()
            raise

    def close(self) -> None:
        async def end() -> None:
            await self.socket.close()
            await self._http.close()

        self._background.run(end(), seconds=30)

    # Frames out

    def send(self, body: Mapping[str, Any]) -> None:
        message = Outgoing(BY_WORD[body["type"]], orjson.dumps(body))
        if self.session is not None:
            message = messages.noise_message(self.seal(message))
        self.send_frame(messages.write(message, self.envelope))

    def seal(self, message: Outgoing) -> bytes:
        assert self.session is not None
        payload = noise.seal(self.session.send_key, self._sent, messages.inner(message, self.inner))
        self._sent += 1
        return payload

    def send_noise(self, payload: bytes) -> None:
        self.send_frame(messages.write(messages.noise_message(payload), self.envelope))

    def send_frame(self, *frames: str | bytes) -> None:
        async def send_all() -> None:
            for frame in frames:
                if isinstance(frame, str):
                    await self.socket.send_str(frame)
                else:
                    await self.socket.send_bytes(frame)

        self._background.run(send_all(), seconds=30)

    # Frames in

    def receive_frame(self, seconds: float = 10) -> str | bytes:
        message = self._background.run(self.socket.receive(), seconds)
        if message.type is aiohttp.WSMsgType.CLOSE:
            raise ClosedByRelay(message.data)
        if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            raise ClosedByRelay(self.socket.close_code)
        frame: str | bytes = message.data
        return frame

    def receive(self) -> Body:
        """The next message, which must have come as ours go."""
        frame = self.receive_frame()
        message = messages.read(frame)
        assert message.envelope == self.envelope, frame
        if message.type is not MessageType.NOISE or self.session is None:
            return dict(message.body)
        return self._unseal(message.octets)

    def _unseal(self, payload: bytes) -> Body:
        assert self.session is not None
        counter, inner = noise.unseal(self.session.receive_key, payload)
        self.received.append(counter)
        return dict(messages.read(inner).body)

    def wait_for(self, **fields: Any) -> Body:
        """The first message with these fields, of those in the inbox and then of those to come."""
        for number, body in enumerate(self.inbox):
            if fields.items() <= body.items():
                return self.inbox.pop(number)
        while True:
            body = self.receive()
            if fields.items() <= body.items():
                return body
            self.inbox.append(body)

    # The protocol's questions

    def publish(self, event: Event | Mapping[str, Any], capability: Any = None) -> Body:
        """The ACK or the ERROR."""
        body = event.as_dict() if isinstance(event, Event) else dict(event)
        given = {} if capability is None else {"capability": capability}
        self.send({"type": "publish", "event": body, **given})
        while True:
            answer = self.receive()
            if answer["type"] in ("ack", "error") and "sub_id" not in answer:
                return answer
            self.inbox.append(answer)

    def subscribe(self, sub_id: str, *filters: Mapping[str, Any]) -> list[Body]:
        """Stored events up to the ACK; the subscription stays open."""
        self.send({"type": "subscribe", "sub_id": sub_id, "filters": filters})
        events = []
        while True:
            answer = self.receive()
            if answer["type"] == "event" and answer["sub_id"] == sub_id:
                events.append(answer["event"])
            elif answer == {"type": "ack", "sub_id": sub_id}:
                return events
            else:
                assert answer["type"] != "error", answer
                self.inbox.append(answer)

    def hello(self, **fields: Any) -> Body:
        body = {"type": "hello", "version": 1, "formats": ["flatbuffers", "json"], **fields}
        octets = orjson.dumps(body)
        self.hello_octets = octets
        self.send_frame(messages.write(Outgoing(BY_WORD["hello"], octets), self.envelope))
        message = messages.read(self.receive_frame())
        self.welcome_octets = message.octets
        return dict(message.body)

    def shake_hands(self, static: bytes | None = None, *, claim: bool = True) -> Body:
        """Everything up to the sealed ACK, which is returned."""
        static = static or secrets.token_bytes(32)
        wish = {"required": True}
        if claim:
            wish["pubkey"] = keys.noise_public_key(static).hex()
        welcome = self.hello(noise=wish)
        self.inner = Format(welcome["format"])
        prologue = noise.prologue(self.hello_octets, self.welcome_octets)
        state = noise.start(initiator=True, prologue=prologue)
        state, first = noise.write_message(state, static, secrets.token_bytes(32))
        self.send_noise(first)
        second = messages.read(self.receive_frame())
        state, _ = noise.read_message(state, static, second.octets)
        assert state.remote_static.hex() == welcome["noise"]["pubkey"]
        state, third = noise.write_message(state, static)
        self.send_noise(third)
        self.session = noise.finish(state)
        return self.receive()
