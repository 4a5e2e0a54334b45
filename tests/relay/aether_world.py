"""Aether clients for tests without a server: they hand frames to the relay and read what comes
back."""

import itertools
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from farthing.aether import keys, messages, noise
from farthing.aether.events import Event, sign_event
from farthing.aether.frames import BY_WORD
from farthing.aether.messages import Envelope, Format, Outgoing
from farthing.context import Agent
from farthing.relay.caller import Caller
from farthing.relay.connect import connect
from farthing.relay.receive import receive
from farthing.relay.verbs import VERBS
from tests.relay.world import HOST, START, connections_of

ALICE = bytes([12] * 32)  # seeds
BOB = bytes([13] * 32)
SECOND = 10**9
JSON = Envelope(Format.JSON)

Body = dict[str, Any]
Frames = list[str | bytes]


def signed(seed: bytes = ALICE, **changes: Any) -> Event:
    given = {"kind": 1, "content": "hello", "created_at": START * SECOND, "tags": ()}
    return sign_event(seed, **{**given, **changes})


def as_body(event: Event) -> Body:
    body: Body = orjson.loads(event.to_json())
    return body


class AetherClient:
    """One connection. `hand_over` brings a frame to the relay and gives what came back for it."""

    def __init__(self, hand_over: Callable[[str], Frames], envelope: Envelope = JSON) -> None:
        self._hand_over = hand_over
        self._envelope = envelope
        self.session: noise.Session | None = None
        self.sent = itertools.count()
        self.counters: list[int] = []

    def send(self, body: Mapping[str, Any]) -> list[Body]:
        message = Outgoing(BY_WORD[body["type"]], orjson.dumps(body))
        if self.session is not None:
            return self.send_noise(self.seal(body))
        return self.send_message(message)

    def seal(self, body: Mapping[str, Any]) -> bytes:
        assert self.session is not None
        return noise.seal(self.session.send_key, next(self.sent), orjson.dumps(body))

    def send_noise(self, payload: bytes) -> list[Body]:
        return self.send_message(messages.noise_message(payload))

    def send_message(self, message: Outgoing) -> list[Body]:
        return self.read(self._hand_over(str(messages.write(message, self._envelope))))

    def read(self, frames: Frames) -> list[Body]:
        """The messages in frames, those inside NOISE opened."""
        return [self._read(frame) for frame in frames]

    def _read(self, frame: str | bytes) -> Body:
        message = messages.read(frame)
        if message.type.word != "noise" or self.session is None:
            return dict(message.body)
        counter, inner = noise.unseal(self.session.receive_key, message.octets)
        self.counters.append(counter)
        return dict(messages.read(inner).body)

    def publish(self, event: Event | Body, capability: object = None) -> Body:
        body = as_body(event) if isinstance(event, Event) else event
        given = {} if capability is None else {"capability": capability}
        *_, answer = self.send({"type": "publish", "event": body, **given})
        return answer

    def subscribe(self, sub_id: str, *filters: Mapping[str, Any]) -> list[Body]:
        return self.send({"type": "subscribe", "sub_id": sub_id, "filters": filters})

    def hello(self, **fields: Any) -> Body:
        """The WELCOME, or the ERROR."""
        body = {"type": "hello", "version": 1, "formats": ["json"], **fields}
        self.hello_octets = orjson.dumps(body)
        frame = messages.write(Outgoing(BY_WORD["hello"], self.hello_octets), self._envelope)
        (answer,) = self._hand_over(str(frame))
        message = messages.read(answer)
        self.welcome_octets = message.octets
        return dict(message.body)

    def shake_hands(
        self, static: bytes | None = None, before: Callable[[], None] | None = None
    ) -> list[Body]:
        """Everything up to the sealed ACK, which is given back. `before` sends plain messages after
        the WELCOME."""
        static = static or secrets.token_bytes(32)
        public = keys.noise_public_key(static).hex()
        self.hello(noise={"required": before is None, "pubkey": public})
        if before is not None:
            before()
        prologue = noise.prologue(self.hello_octets, self.welcome_octets)
        state = noise.start(initiator=True, prologue=prologue)
        state, first = noise.write_message(state, static, secrets.token_bytes(32))
        (answer,) = self.send_noise(first)
        state, _ = noise.read_message(state, static, bytes.fromhex(answer["payload_hex"]))
        state, self.third = noise.write_message(state, static)
        self.session = noise.finish(state)
        return self.send_noise(self.third)


def connected(
    agent: Agent, connection_id: str = "aether", *, marked: bool = True, ip: str | None = None
) -> AetherClient:
    """A client of an agent, without handlers in between."""
    connect(agent, connection_id, HOST, is_aether=marked)
    return client_of(agent, connection_id, ip=ip)


def client_of(agent: Agent, connection_id: str, *, ip: str | None = None) -> AetherClient:
    times = itertools.count(int(agent.clock() * 1000) + 1)

    def hand_over(frame: str) -> Frames:
        caller = Caller(agent, connection_id, next(times), HOST, ip)
        reply = receive(agent, caller, frame, VERBS)
        posted = connections_of(agent).take_frames(connection_id)
        return posted if reply is None else [*posted, reply]

    return AetherClient(hand_over)
